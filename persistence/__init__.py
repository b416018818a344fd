"""A persistence service for forms: definitions, data, drafts and attachments as plain files, over REST."""

__version__ = "0.1.0"
