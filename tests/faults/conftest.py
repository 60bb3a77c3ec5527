from tests.processes.conftest import bare_site, site

__all__ = ["bare_site", "site"]
