"""Every metric liken exposes, in one registry that the composition root makes and hands out.

Names end in their unit; labels come from closed vocabularies only (reasons, results, kinds), never from
hardware, claims or serials, so that the number of series is bounded. `web` renders the registry.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one daemon; make one for each registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register everything in `registry`, or in a new one."""
        self.registry = r = registry if registry is not None else CollectorRegistry()
        self.uevents = Counter("liken_uevents", "Kernel uevents received", registry=r)
        self.uevents_dropped = Counter(
            "liken_uevents_dropped", "Datagrams not used, by cause", ["cause"], registry=r
        )  # cause: foreign, malformed
        self.resyncs = Counter("liken_resyncs", "Full comparisons with sysfs, by cause", ["cause"], registry=r)
        # cause: start, overflow, truncated, reader, safety
        self.corrections = Counter(
            "liken_corrections", "Devices a safety resync had to correct (must stay 0)", registry=r
        )
        self.settle_seconds = Histogram(
            "liken_settle_seconds", "First event to the end of its settle window", buckets=LATENCY_BUCKETS_S, registry=r
        )
        self.publish_seconds = Histogram(
            "liken_event_to_patch_seconds", "First event to the accepted write", buckets=LATENCY_BUCKETS_S, registry=r
        )
        self.devices = Gauge("liken_devices", "Bus entries by verdict", ["verdict"], registry=r)
        self.devices_offered = Gauge("liken_devices_offered", "Devices in the slices", registry=r)
        self.devices_held_back = Gauge("liken_devices_held_back", "Flapping devices held back", registry=r)
        self.sysfs_stuck = Gauge("liken_sysfs_reads_stuck", "Device reads past their deadline", registry=r)
        self.slices = Gauge("liken_slices", "Slices on the API server", registry=r)
        self.slice_writes = Counter("liken_slice_writes", "Slice writes", ["verb", "result"], registry=r)
        # verb: create, patch, delete; result: ok, conflict, invalid, forbidden, unavailable, …
        self.slice_repairs = Counter("liken_slice_repairs", "Slices restored after a change by others", registry=r)
        self.last_publish = Gauge(
            "liken_last_successful_publish_timestamp_seconds", "When the slices last were as they should be", registry=r
        )
        self.prepares = Counter("liken_claim_prepares", "Claims prepared, by result", ["result"], registry=r)
        self.unprepares = Counter("liken_claim_unprepares", "Claims unprepared, by result", ["result"], registry=r)
        self.prepare_seconds = Histogram(
            "liken_claim_prepare_seconds", "Duration of one claim's prepare", buckets=LATENCY_BUCKETS_S, registry=r
        )
        self.prepared_claims = Gauge("liken_prepared_claims", "Claims with a CDI file", registry=r)
        self.claim_refreshes = Counter("liken_claim_refreshes", "CDI files rewritten for the hardware", registry=r)
        self.health_transitions = Counter(
            "liken_health_transitions", "Changes of a claimed device's health, by the new one", ["to"], registry=r
        )
        self.modules = Gauge("liken_modules", "Modules of the Machine by state", ["state"], registry=r)
        self.serio = Gauge("liken_serio_attachments", "Serial attachments by state", ["state"], registry=r)
        self.unclaimed = Gauge("liken_unclaimed_devices", "Driverless hardware that a module could drive", registry=r)
        self.build = Gauge("liken_build_info", "1, with the version as a label", ["version"], registry=r)
