"""Every message of a claim, with its cause and its remedy, for the reference and for nothing else.

Each entry shows the real sentence with sample values, so that a page made from it cannot differ from what a person
reads.
"""

from dataclasses import dataclass

from liken.claims import words

_CLAIM, _DEVICE, _NODE = "home/zigbee", "usb-2-1-1-0", "node-a"
_AT = 50_602.0  # 14:03:22 UTC


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence as it is read, why it is said, and what helps; `maker` is the function that makes it."""

    maker: str
    text: str
    cause: str
    remedy: str


def _message(maker: str, sample: tuple[object, ...], cause: str, remedy: str) -> Message:
    return Message(maker, getattr(words, maker)(*sample), cause, remedy)


MESSAGES: tuple[Message, ...] = (
    # the claim
    _message(
        "claim_gone",
        (_CLAIM,),
        "The claim was deleted after its pod was bound.",
        "Delete the pod; its owner makes both anew.",
    ),
    _message(
        "claim_replaced",
        (_CLAIM, "3d5a", "9f01"),
        "A claim of the same name was made anew while the pod waited.",
        "Delete the pod; the new one gets the new claim.",
    ),
    _message(
        "claim_forbidden",
        (_CLAIM, "resourceclaims is forbidden"),
        "liken's service account lacks the right to read claims.",
        "Apply the ClusterRole that comes with liken; `liken doctor` names what is missing.",
    ),
    _message(
        "claim_unread",
        (_CLAIM, 503, 30.0, "etcdserver: leader changed"),
        "The API server answered with an error (401, 429, 5xx) or not at all, until the time for it was used up.",
        "Nothing for the pod; look at the API server, or for 401 at liken's token.",
    ),
    _message(
        "claim_late", (_CLAIM, 30.0), "The API server took the request and never answered.", "Look at the API server."
    ),
    _message(
        "claim_strange",
        (_CLAIM, 400, "bad request"),
        "The API server refuses the request itself.",
        "Compare the versions of the cluster and of liken.",
    ),
    _message(
        "unallocated",
        (_CLAIM,),
        "The pod was put on the node past the scheduler, which allocates claims.",
        "Remove `nodeName` from the pod, or wait for the scheduler.",
    ),
    _message(
        "nothing_of_ours",
        (_CLAIM, "liken.sh"),
        "The allocation holds devices of other drivers only.",
        "Look at the claim's `status.allocation`; the kubelet should not have asked.",
    ),
    _message(
        "another_node",
        (_CLAIM, _DEVICE, "node-b", _NODE),
        "The claim was allocated for another node, or this node has changed its name.",
        "Delete the pod; a new allocation is made.",
    ),
    _message("strange_uid", ("../x",), "The caller is no kubelet.", "Find out who dials liken's socket."),
    # the hardware
    _message(
        "not_ready",
        (10.0,),
        "liken has just started and its first look at the hardware takes long.",
        "Wait; `liken explain` names a device that does not answer.",
    ),
    _message(
        "not_answering",
        ([_DEVICE], 8.0),
        "The kernel does not answer reads of the device's files.",
        "See the kernel's log; replug the device.",
    ),
    _message(
        "not_there",
        (_DEVICE, words.departed(_AT, "it was unplugged")),
        "The device was allocated and is gone, or no longer is what it was.",
        "Plug it in again, or delete the pod so that it gets another device.",
    ),
    _message(
        "departed",
        (_AT, "it was unplugged"),
        "Health of a claimed device, and the reason in other messages: when and how it left.",
        "Plug it in again, into the same port.",
    ),
    _message(
        "never_seen",
        (),
        "Reason in other messages: the name belongs to a port where nothing is.",
        "Look at `liken devices`.",
    ),
    _message(
        "driver_gone",
        ("`liken unclaimed` names the module",),
        "Reason in other messages: no kernel driver is bound to the device.",
        "Load its module: `spec.modules` of the Machine.",
    ),
    _message(
        "withheld",
        ("MachineDependsOnIt", "sdb1 is mounted"),
        "Reason in other messages: the device is there and is not offered now.",
        "`liken explain NAME` says more.",
    ),
    _message(
        "another_model",
        ("FT232 (0403:6001)", "CP2102 (10c4:ea60)"),
        "Reason in other messages: another model was plugged into the port the claim holds.",
        "Plug the claimed model in again, or delete the pod.",
    ),
    _message(
        "replugged",
        (["ttyUSB1"],),
        "Health: the device was away since the pod received it; its running container has the old node.",
        "Restart the pod.",
    ),
    _message(
        "moved",
        (["ttyUSB1"],),
        "Health: the driver was bound anew, so the node of the running container leads nowhere.",
        "Restart the pod.",
    ),
    # other claims, configuration, files
    _message(
        "held",
        (_DEVICE, "home/first"),
        "The scheduler gave out a device that another claim still holds, as after a claim was deleted by force.",
        "Delete the pod of the claim that holds it.",
    ),
    _message(
        "bad_options",
        (_CLAIM, "adapter", "NodeOptions has no field pathes: did you mean path?"),
        "The opaque configuration of the claim or its DeviceClass asks for what cannot be.",
        "Correct what the message names.",
    ),
    _message(
        "unknown_kind",
        ("sound", ["tty", "usb"]),
        "`paths` names a kind of node that no device of the claim has.",
        "Use one of the kinds in the message.",
    ),
    _message(
        "nothing_left",
        (_DEVICE,),
        "`busNode: false` would leave the container without any node.",
        "Leave `busNode` out.",
    ),
    _message(
        "same_path",
        ("/dev/zigbee", "/dev/ttyUSB0", "/dev/ttyUSB1"),
        "One path of the configuration would stand for two nodes in one container.",
        "Give each request a configuration of its own, with `requests`.",
    ),
    _message(
        "busy",
        (_CLAIM, 20.0),
        "During a rolling update the other instance of liken is at work on the claim.",
        "Wait; if it stays, delete the older liken pod.",
    ),
    _message(
        "unlockable",
        ("/var/lib/kubelet/plugins/liken.sh/claims.lock: Read-only file system",),
        "The folder of liken's socket cannot be written.",
        "Mount it writable.",
    ),
    _message(
        "restless", (_CLAIM,), "Something rewrites liken's CDI files all the time.", "Find out what, and stop it."
    ),
    _message(
        "invalid_document",
        (_CLAIM, ["devices[0] has no edits"]),
        "A fault of liken.",
        "Report it with the claim and `liken devices -o json`.",
    ),
    _message(
        "unwritable",
        (_CLAIM, "/var/run/cdi: the disk is full: free some space"),
        "The folder of CDI files cannot be written; an old file is as it was.",
        "Do what the message says.",
    ),
    _message(
        "unremovable",
        (_CLAIM, "/var/run/cdi: the file system is read-only: mount the folder writable"),
        "The pod cannot end before the claim's file is removed.",
        "Do what the message says.",
    ),
    _message("failed_inside", (_CLAIM,), "A fault of liken.", "Report it with the log line `claims.failed`."),
)
