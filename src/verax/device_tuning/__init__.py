"""Tuning on devices that are not this process: one measuring actor for each, builders beside them.

A device is a host's cores with a target and a label, or a board behind a command; it measures and
nothing else: it races candidates that builders made for its target, and compares bits. What is
searched and what a history says is decided here, by `compiler.tuner`, on a thread for each device.
Only plain data travels: kernels, schedules, objects, times. Whatever a device says carries its
name, and a device that gives other bits is believed nothing more.
"""

from verax.device_tuning.session import DeviceResult, tune_devices

__all__ = ["DeviceResult", "tune_devices"]
