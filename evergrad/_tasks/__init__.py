from evergrad._core.sources import Data as Data, Sequence as Sequence, Source as Source
from evergrad._tasks.add import Add as Add
from evergrad._tasks.anbn import AnBn as AnBn
from evergrad._tasks.chain import Chain as Chain
from evergrad._tasks.chaos import Chaos as Chaos
from evergrad._tasks.copy import Copy as Copy
from evergrad._tasks.cue import Cue as Cue
from evergrad._tasks.generated import Generated as Generated
from evergrad._tasks.rotation import Rotation as Rotation
from evergrad._tasks.series import Series as Series
from evergrad._tasks.text import CharacterText as CharacterText
from evergrad._tasks.trace import Trace as Trace
