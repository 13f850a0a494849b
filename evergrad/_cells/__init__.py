from evergrad._cells.base import Cell as Cell, KroneckerCell as KroneckerCell
from evergrad._cells.columnar import ELSTM as ELSTM, ColumnarLSTM as ColumnarLSTM
from evergrad._cells.gru import GRU as GRU
from evergrad._cells.indrnn import IndRNN as IndRNN
from evergrad._cells.leaky import Leaky as Leaky
from evergrad._cells.lru import LRU as LRU
from evergrad._cells.lstm import LSTM as LSTM
from evergrad._cells.minimal import MinGRU as MinGRU, MinLSTM as MinLSTM
from evergrad._cells.rglru import RGLRU as RGLRU
from evergrad._cells.rhn import RHN as RHN
from evergrad._cells.rnn import RNN as RNN
from evergrad._cells.rtu import RTU as RTU
from evergrad._cells.stack import Stack as Stack
from evergrad._cells.unit import UnitCell as UnitCell
