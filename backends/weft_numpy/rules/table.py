"""The rule table of the NumPy backend."""

from weft.ir.rules import RuleTable

rules = RuleTable("numpy")
