"""Pages of the server for people: home, jobs, images, benchmarks, lineage, cache, endpoints.

They are rendered here and work without scripts; every change is a request of the API.
"""

from __future__ import annotations

from aiohttp import web

from packager.addons.server.pages.benchmarks import BenchmarkPages
from packager.addons.server.pages.caches import CachePages
from packager.addons.server.pages.create import NewJobPages
from packager.addons.server.pages.endpoints import EndpointPages
from packager.addons.server.pages.home import HomePage
from packager.addons.server.pages.images import ImagePages
from packager.addons.server.pages.jobs import JobPages
from packager.addons.server.pages.lineage import LineagePages
from packager.addons.server.pages.live import LivePages
from packager.addons.server.pages.recorded import RecordedBuilds
from packager.addons.server.pages.site import ROOT, Call, Handler, Site, asset
from packager.addons.server.services import ServeServices


def mount(application: web.Application, services: ServeServices, call: Call) -> None:
    """Add all pages to an application; they go through `call` for the API's operations."""
    mount_site(application, Site(services=services, call=call))


def mount_site(application: web.Application, site: Site) -> None:
    """Add the pages of a site; what streams to open pages ends with the application."""

    async def end(_: web.Application) -> None:
        site.ending.set()

    application.add_routes(site_routes(site))
    application.on_shutdown.append(end)


def site_routes(site: Site) -> list[web.RouteDef]:
    """Return the routes of a site, each behind the checks of all pages."""
    jobs, live, new = JobPages(site), LivePages(site), NewJobPages(site)
    builds = RecordedBuilds(site.services.state.parent / "records")
    benchmarks, caches, lineage = BenchmarkPages(site), CachePages(site), LineagePages(site, builds)
    endpoints, images = EndpointPages(site, builds), ImagePages(site, builds)
    home = HomePage(site, builds)
    job, endpoint = "/jobs/{kind}/{name:[^/]+}", "/endpoints/{name}"

    gets: dict[str, Handler] = {
        "": home.show,
        "/": home.show,
        r"/{asset:ui\.css|ui\.js|icon\.svg}": asset,
        "/jobs": jobs.list,
        "/jobs/events": live.jobs,
        "/jobs/new": new.form,
        job: jobs.show,
        f"{job}/log": jobs.log,
        f"{job}/events": live.job,
        "/images": images.list,
        "/images/compare": images.compare,
        "/benchmarks": benchmarks.list,
        "/benchmarks/compare": benchmarks.compare,
        "/caches": caches.show,
        "/lineage": lineage.show,
        "/endpoints": endpoints.list,
        "/endpoints/new": endpoints.form,
        endpoint: endpoints.show,
    }
    posts: dict[str, Handler] = {
        "/jobs/new": new.send,
        f"{job}/stop": jobs.stop,
        f"{job}/delete": jobs.delete,
        "/endpoints/new": endpoints.create,
        f"{endpoint}/ask": endpoints.ask,
        f"{endpoint}/delete": endpoints.delete,
    }
    return [
        *(web.get(f"{ROOT}{path}", site.guarded(handler)) for path, handler in gets.items()),
        *(web.post(f"{ROOT}{path}", site.guarded(handler)) for path, handler in posts.items()),
    ]
