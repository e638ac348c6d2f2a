"""The fuzz targets of the catalogue and the ids files, run here on what hypothesis makes up."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fuzz import fuzz_ids, fuzz_modalias

LINES = st.lists(
    st.sampled_from(
        [
            b"alias pci:v00008086d*sv*sd*bc03sc*i* i915\n",
            b"alias usb:v10C4pEA60d[0-9]* cp210x\n",
            b"alias pci:[ x\n",
            b"\0",
        ]
    )
    | st.binary(max_size=30)
).map(b"".join)


@settings(max_examples=100, deadline=None)
@given(LINES)
@example(b"alias pci:v0000* x\n\0pci:v00008086d00000001")
def test_no_catalogue_and_no_modalias_break_the_matcher(data: bytes) -> None:
    fuzz_modalias.one(data)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"8086  Intel\n", b"\t46d2  GPU\n", b"C 03  Display\n", b"\xff\n"]) | st.binary(max_size=20)
    ).map(b"".join)
)
def test_no_ids_file_breaks_its_reader(data: bytes) -> None:
    fuzz_ids.one(data)
