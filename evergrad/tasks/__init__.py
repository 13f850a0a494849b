from evergrad.tasks.base import Data as Data, Sequence as Sequence, Source as Source
from evergrad.tasks.copy import Copy as Copy
from evergrad.tasks.cue import Cue as Cue
from evergrad.tasks.series import Series as Series
from evergrad.tasks.text import CharacterText as CharacterText
