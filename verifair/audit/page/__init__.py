"""The audit's page: one HTML file without any network access."""

from verifair.audit.page.render import page

__all__ = ["page"]
