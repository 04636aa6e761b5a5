"""The table of lowering rules, which the modules of this package and plugins extend."""

from weft.ir.rules import RuleTable

rules = RuleTable("numpy")
