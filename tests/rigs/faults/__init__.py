"""Faults of the disk: errors at every call, full, read-only and slow disks, and a service that lacks a protection."""
