from evergrad.tasks.base import Data as Data, Sequence as Sequence, Source as Source
from evergrad.tasks.copy import Copy as Copy
