"""Ready-made axes of the usual names; each has an unknown length until it is given or solved.

``C`` channel, ``D`` depth, ``H`` height, ``W`` width, ``N`` batch, ``Y`` classes, ``REC`` time.
"""

from weft.ir.axes import Axis

C = Axis(None, "C")
D = Axis(None, "D")
H = Axis(None, "H")
W = Axis(None, "W")
N = Axis(None, "N")
Y = Axis(None, "Y")
REC = Axis(None, "REC")
