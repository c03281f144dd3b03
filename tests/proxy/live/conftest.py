from tests.proxy.live.fake_admin import admin

__all__ = ["admin"]
