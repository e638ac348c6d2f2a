"""The module catalogue: kmod's matching and order, on hand-written lines and on Debian's own files."""

import fnmatch
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.state.catalog import ModuleCatalog
from liken.state.glob import literal_prefix, matches

GPU = "pci:v00008086d000046D2sv00008086sd00007270bc03sc00i00"
STICK = "usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00"
ALIAS = b"""# Aliases extracted from modules themselves.
alias pci:v00008086d000046D2sv*sd*bc03sc*i* i915
alias pci:v00008086d000046D[0-3]sv*sd*bc03sc*i* xe
alias pci:v*d*sv*sd*bc03sc00i00* vga-class
alias pci:v00008086d*sv*sd*bc03sc*i* i915
alias pci:v00008086d*sv*sd*bc03sc*i* built-in
alias usb:v10C4pEA60d*dc*dsc*dp*ic*isc*ip*in* cp210x
alias usb:v*p*d*dc*dsc*dp*icFFisc00ip00in* generic
alias usb:v10C4p*d0[0-1]*dc*dsc*dp*ic*isc*ip*in* any_model
alias acpi*:PNP0A03:* pci_root
alias pci:broken
"""


def catalog() -> ModuleCatalog:
    return ModuleCatalog(
        alias=ALIAS,
        dep=b"gpu/i915.ko.xz: drm-kms-helper.ko.xz gpu/drm.ko.xz\ndrm-kms-helper.ko.xz:\ngpu/drm.ko.xz:\nxe.ko:",
        builtin=b"kernel/built_in.ko\n",
        softdep=b"softdep i915 pre: intel-gtt nvmem post: later\nsoftdep i915 pre: agp\nsoftdep cifs ccm\n",
        modprobe=b"  blacklist nouveau\n# blacklist xe\nblacklist snd-pcsp\n",
    )


def test_candidates_stand_in_the_order_of_the_lines_and_built_in_ones_are_left_out() -> None:
    assert catalog().candidates(GPU) == ("i915", "xe", "vga_class")
    found = catalog()
    assert found.candidates(STICK) == found.candidates(STICK) == ("cp210x", "generic", "any_model")
    assert catalog().candidates(GPU.replace("46D2", "46D9")) == ("vga_class", "i915")


@pytest.mark.parametrize(
    "modalias", ["", "pci:", "usb:v10c4pea60", "acpi:PNP0A03:", "pci:v0000FFFFd0000FFFFsv0sd0bc07"]
)
def test_what_no_alias_fits_has_no_candidates(modalias: str) -> None:
    assert catalog().candidates(modalias) == ()


def test_a_dash_and_an_underscore_are_one() -> None:
    found = catalog()
    assert (found.exists("drm_kms_helper"), found.exists("drm-kms-helper"), found.exists("nobody")) == (
        True,
        True,
        False,
    )
    assert (found.exists("built-in"), found.is_builtin("built-in"), found.is_builtin("i915")) == (True, True, False)
    assert found.is_blacklisted("snd_pcsp")
    assert found.is_blacklisted("nouveau")
    assert not found.is_blacklisted("xe")


def test_dependencies_and_soft_dependencies_come_in_order() -> None:
    found = catalog()
    assert found.dependencies("i915") == ("drm_kms_helper", "drm")
    assert found.dependencies("xe") == found.dependencies("nobody") == ()
    assert found.softdeps("i915") == ("intel_gtt", "nvmem", "agp")
    assert found.softdeps("cifs") == ()


def test_a_misspelling_has_its_nearest_name() -> None:
    assert catalog().nearest("i951") == "i915"
    assert catalog().nearest("no_such_thing") is None


def test_the_memory_of_answers_is_bounded() -> None:
    found = catalog()
    for product in range(2000):
        found.candidates(f"usb:v10C4p{product:04X}d0100dc00dsc00dp00ic03isc00ip00in00")
    assert len(found._found) <= 1024


def test_a_tree_is_read_plain_or_compressed_with_modprobes_configuration(tmp_path: Path) -> None:
    tree, conf = tmp_path / "6.12.9", tmp_path / "modprobe.d"
    tree.mkdir()
    conf.mkdir()
    (tree / "modules.alias.xz").write_bytes(lzma.compress(ALIAS))
    (tree / "modules.dep").write_bytes(b"kernel/i915.ko:\n")
    (tree / "modules.builtin.gz").write_bytes(b"not gzip")
    (conf / "a.conf").write_bytes(b"blacklist i915\n")
    (conf / "b.conf").mkdir()
    found = ModuleCatalog.read(tree, modprobe_folders=(conf, tmp_path / "absent"))
    assert found.problem is None
    assert found.candidates(GPU)[0] == "i915"
    assert found.is_blacklisted("i915")
    assert found.exists("i915")


def test_a_missing_tree_says_which_and_what_to_do(tmp_path: Path) -> None:
    lib = tmp_path / "modules"
    absent = ModuleCatalog.read(lib / "6.12.9").problem
    assert absent is not None
    assert "6.12.9" in absent
    assert "mount" in absent
    (lib / "no-kernel").mkdir(parents=True)
    assert ModuleCatalog.read(lib / "6.12.9").problem == absent
    (lib / "6.12.10").mkdir()
    (lib / "6.12.10" / "modules.dep").write_bytes(b"")
    other = ModuleCatalog.read(lib / "6.12.9").problem
    assert other is not None
    assert "6.12.10" in other
    assert "no-kernel" not in other
    assert "reboot" in other
    unbuilt = ModuleCatalog.read(lib / "6.12.10").problem
    assert unbuilt is not None
    assert "depmod" in unbuilt
    assert ModuleCatalog.read(lib / "6.12.9").candidates(GPU) == ()


@pytest.mark.shared
def test_debians_own_catalogue_names_the_driver_of_the_guide(shared: Path) -> None:
    found = ModuleCatalog.read(shared / "recordings" / "debian")
    assert found.candidates(GPU) == ("i915",)
    assert found.candidates(STICK) == ("cp210x",)
    assert found.candidates("pci:v00008086d0000FFFFsv00000000sd00000000bc07sc00i00") == ()
    assert found.candidates("usb:v13FDp3940d0199dc00dsc00dp00ic08isc06ip62in00") == ("uas", "usb_storage")
    assert found.softdeps("ext4") == ("crypto_crc32c",)
    assert "drm" in found.dependencies("i915")
    assert found.exists("snd-hda-intel")
    assert found.nearest("snd-hda-intl") == "snd_hda_intel"


@pytest.mark.shared
def test_the_index_finds_what_a_look_at_every_line_finds(shared: Path) -> None:
    raw = lzma.decompress((shared / "recordings" / "debian" / "modules.alias.xz").read_bytes()).decode()
    lines = [line.split() for line in raw.splitlines() if line.startswith(("alias pci:", "alias usb:"))]
    found = ModuleCatalog(alias=raw.encode())
    for modalias in (
        GPU,
        STICK,
        "pci:v00008086d0000A36Dsv00000000sd00000000bc0Csc03i30",
        "pci:v000010ECd00008139sv000010ECsd00008139bc02sc00i00",
        "usb:v046DpC52Bd1211dc00dsc00dp00ic03isc01ip01in00",
        "usb:v0BDAp2838d0100dc00dsc00dp00icFFiscFFipFFin01",
    ):
        every = dict.fromkeys(module for _, pattern, module in lines if matches(pattern, modalias))
        assert found.candidates(modalias) == tuple(every), modalias


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("usb:v*p*", "usb:v1p2", True),
        ("d0[0-2]*", "d0199", True),
        ("d0[!0-2]*", "d0199", False),
        ("d0[^0-2]*", "d0399", True),
        ("[]a]", "]", True),
        ("[!]a]", "]", False),
        ("[a-]", "-", True),
        ("[abc", "[abc", True),
        ("a\\*b", "a*b", True),
        ("a\\*b", "axb", False),
        ("a\\", "a\\", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("a", "", False),
        ("a*b*c", "aXbYbZc", True),
        ("a*b*c", "aXbYbZ", False),
        ("A", "a", False),
        ("[", "[", True),
    ],
)
def test_the_glob_dialect_is_that_of_fnmatch_3(pattern: str, text: str, expected: bool) -> None:  # noqa: FBT001
    assert matches(pattern, text) is expected


@settings(max_examples=100, deadline=None)
@given(st.text("ab*?[]-!", max_size=12), st.text("ab-[]!*?", max_size=12))
def test_patterns_without_backslashes_match_as_pythons_fnmatch_does(pattern: str, text: str) -> None:
    expected = fnmatch.fnmatchcase(text, pattern)
    assert matches(pattern, text) is expected
    if expected:
        assert text.startswith(literal_prefix(pattern))


def test_no_pattern_takes_more_than_length_times_length() -> None:
    assert not matches("*a" * 200 + "b", "a" * 4000)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.text(max_size=60))
def test_no_bytes_of_a_catalogue_and_no_modalias_raise(raw: bytes, modalias: str) -> None:
    found = ModuleCatalog(
        alias=b"alias pci:" + raw + b" x\nalias usb:" + raw, dep=raw, builtin=raw, softdep=raw, modprobe=raw
    )
    for module in found.candidates(f"pci:{modalias}"):
        assert found.dependencies(module) is not None
    found.candidates(modalias)
    found.nearest(modalias)
