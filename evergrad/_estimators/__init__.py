from evergrad._estimators.artbp import ARTBP as ARTBP
from evergrad._estimators.base import Estimator as Estimator
from evergrad._estimators.dni import DNI as DNI
from evergrad._estimators.fixed import Fixed as Fixed
from evergrad._estimators.kernl import KeRNL as KeRNL
from evergrad._estimators.kf import KF as KF
from evergrad._estimators.ktp import KTP as KTP
from evergrad._estimators.local import RFLO as RFLO, EProp as EProp, Local as Local, SnAp1 as SnAp1
from evergrad._estimators.ok import OK as OK
from evergrad._estimators.reverse_kf import ReverseKF as ReverseKF
from evergrad._estimators.rtrl import RTRL as RTRL
from evergrad._estimators.snap import SnAp as SnAp
from evergrad._estimators.tbptt import TBPTT as TBPTT
from evergrad._estimators.uoro import UORO as UORO
