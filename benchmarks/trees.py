"""A made-up machine of any size as a sysfs tree: hubs of seven serial adapters below one controller."""

import os
import pathlib

CONTROLLER = "devices/pci0000:00/0000:00:14.0"
PER_HUB = 7


def machine(root: pathlib.Path, adapters: int) -> list[str]:
    """Write the tree below `root`; return the bus addresses of the adapters (`1-1.3`)."""
    _device(root, CONTROLLER, "pci", {"vendor": "0x8086", "device": "0xa36d", "class": "0x0c0330"}, driver="xhci_hcd")
    usb = f"{CONTROLLER}/usb1"
    _usb(root, usb, 1, "1d6b", "0002")
    addresses = []
    for number in range(adapters):
        hub, port = divmod(number, PER_HUB)
        at = f"{usb}/1-{hub + 1}"
        if port == 0:
            _usb(root, at, number % 127 + 1, "05e3", "0610")
        addresses.append(f"1-{hub + 1}.{port + 1}")
        adapter(root, f"{at}/{addresses[-1]}", number)
    return addresses


def adapter(root: pathlib.Path, at: str, number: int, *, devnum: int | None = None) -> None:
    """One CP2102 with its interface and tty."""
    _usb(root, at, devnum if devnum is not None else number % 127 + 1, "10c4", "ea60", serial=f"{number:08}")
    interface = f"{at}/{os.path.basename(at)}:1.0"  # noqa: PTH119  (a path inside sysfs)
    files = {"bInterfaceClass": "ff", "modalias": "usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00"}
    _device(root, interface, "usb", files, driver="cp210x", uevent="DEVTYPE=usb_interface\n")
    tty = f"{interface}/ttyUSB{number}/tty/ttyUSB{number}"
    uevent = f"MAJOR=188\nMINOR={number}\nDEVNAME=ttyUSB{number}\n"
    _device(root, tty, "tty", {"dev": f"188:{number}"}, uevent=uevent, home="class/tty")


def _usb(root: pathlib.Path, at: str, number: int, vendor: str, product: str, **files: str) -> None:
    known = {"idVendor": vendor, "idProduct": product, "busnum": "1", "devnum": str(number), "authorized": "1"}
    strings = {"manufacturer": "Silicon Labs", "product": "CP2102 USB to UART Bridge Controller"}
    more = known | (strings if vendor == "10c4" else {}) | {"bConfigurationValue": "1"} | files
    _device(root, at, "usb", more, driver="usb", uevent="DEVTYPE=usb_device\n")


def _device(
    root: pathlib.Path,
    at: str,
    subsystem: str,
    files: dict[str, str],
    *,
    driver: str = "",
    uevent: str = "",
    home: str = "",
) -> None:
    folder = root / at
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "uevent").write_text(uevent)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")
    up = "../" * (at.count("/") + 1)
    base = home or f"bus/{subsystem}"
    (folder / "subsystem").symlink_to(up + base)
    listing = root / (base if home else f"{base}/devices")
    listing.mkdir(parents=True, exist_ok=True)
    (listing / folder.name).symlink_to("../" * (2 if home else 3) + at)
    if driver:
        (root / base / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(f"{up}{base}/drivers/{driver}")
