from evergrad.tasks.add import Add as Add
from evergrad.tasks.anbn import AnBn as AnBn
from evergrad.tasks.balance import Balance as Balance
from evergrad.tasks.base import Data as Data, Sequence as Sequence, Source as Source
from evergrad.tasks.chain import Chain as Chain
from evergrad.tasks.chaos import Chaos as Chaos
from evergrad.tasks.copy import Copy as Copy
from evergrad.tasks.cue import Cue as Cue
from evergrad.tasks.generated import Generated as Generated
from evergrad.tasks.rotation import Rotation as Rotation
from evergrad.tasks.series import Series as Series
from evergrad.tasks.text import CharacterText as CharacterText
from evergrad.tasks.trace import Trace as Trace
