"""Monitoring of a live run: callbacks, monitors, report."""


def register() -> list[str]:
    """Register the callback of the monitors; our GRPO trainer adds it to every run."""
    from swift.callbacks import callbacks_map

    from swift_grpo_ext.watch.watch import Watch

    callbacks_map["ext_watch"] = Watch
    return ["ext_watch"]
