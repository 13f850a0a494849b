from evergrad.cells.base import Cell as Cell, KroneckerCell as KroneckerCell
from evergrad.cells.gru import GRU as GRU
from evergrad.cells.lstm import LSTM as LSTM
from evergrad.cells.rhn import RHN as RHN
from evergrad.cells.rnn import RNN as RNN
from evergrad.cells.stack import Stack as Stack
