"""The panels of the noise figures, as data."""

import dataclasses

UNTRAINED = {
    "2-OK": "ok:rank=2,window=0,mix=signs",
    "1-OK": "ok:rank=1,window=0,mix=signs",
    "2-KF-RTRL-AVG": "kf:copies=2",
    "KF-RTRL": "kf",
}
TRAINED_PTB = {
    "8-OK, window 16 (ours)": "ok:rank=8,window=16",
    "8-OK": "ok:rank=8,window=0,mix=signs",
    "2-OK": "ok:rank=2,window=0,mix=signs",
    "8-KF-RTRL-AVG": "kf:copies=8",
}
TRAINED_COPY = {
    "16-OK, window 16 (ours)": "ok:rank=16,window=16",
    "16-OK": "ok:rank=16,window=0,mix=signs",
    "8-OK": "ok:rank=8,window=0,mix=signs",
    "16-KF-RTRL-AVG": "kf:copies=16",
}


@dataclasses.dataclass(frozen=True)
class Panel:
    """A trained network and the estimators that are looked at with it; `ok` and `kf` are those that the claims are about."""

    key: str
    figure: str
    title: str
    network: str
    estimators: dict[str, str]
    ok: str
    kf: str
    task: str
    seed: int = 0
    large: bool = False

    @property
    def ours(self) -> str:
        return f"{self.ok}, window 16 (ours)"


def _ptb(key, figure, title, network, **more):
    return Panel(key, figure, title, network, TRAINED_PTB, "8-OK", "8-KF-RTRL-AVG", "text", **more)


def _copy(key, figure, title, network, **more):
    return Panel(key, figure, title, network, TRAINED_COPY, "16-OK", "16-KF-RTRL-AVG", "copy", **more)


PANELS = (
    _ptb("fig3", "Figure 3", "trained on PTB, 256 units", "ptb"),
    _copy("figA3", "Figure A.3", "trained on copy, 128 units", "copy"),
    _copy("figA4", "Figure A.4", "the same with other trained weights", "copy", seed=1),
    _copy("figA6", "Figure A.6", "trained on copy, 512 units", "copy 512", large=True),
    _ptb("figA7", "Figure A.7", "trained on PTB, 512 units", "ptb 512", large=True),
)
PANEL = {panel.key: panel for panel in PANELS}
