"""Attachments in a store that speaks S3: their bodies as objects that never change."""
