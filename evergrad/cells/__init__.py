from evergrad.cells.base import Cell as Cell, KroneckerCell as KroneckerCell
from evergrad.cells.columnar import ELSTM as ELSTM, ColumnarLSTM as ColumnarLSTM
from evergrad.cells.gru import GRU as GRU
from evergrad.cells.indrnn import IndRNN as IndRNN
from evergrad.cells.leaky import Leaky as Leaky
from evergrad.cells.lru import LRU as LRU
from evergrad.cells.lstm import LSTM as LSTM
from evergrad.cells.minimal import MinGRU as MinGRU, MinLSTM as MinLSTM
from evergrad.cells.rglru import RGLRU as RGLRU
from evergrad.cells.rhn import RHN as RHN
from evergrad.cells.rnn import RNN as RNN
from evergrad.cells.rtu import RTU as RTU
from evergrad.cells.stack import Stack as Stack
from evergrad.cells.unit import UnitCell as UnitCell
