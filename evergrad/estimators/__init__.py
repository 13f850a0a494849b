from evergrad.estimators.base import Estimator as Estimator
from evergrad.estimators.kf import KF as KF
from evergrad.estimators.ktp import KTP as KTP
from evergrad.estimators.local import RFLO as RFLO, EProp as EProp, Local as Local, SnAp1 as SnAp1
from evergrad.estimators.ok import OK as OK
from evergrad.estimators.rtrl import RTRL as RTRL
from evergrad.estimators.tbptt import TBPTT as TBPTT
from evergrad.estimators.uoro import UORO as UORO
