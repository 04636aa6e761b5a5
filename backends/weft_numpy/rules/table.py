"""The table that the modules of this package, and plugins, put their rules into."""

from weft.ir.rules import RuleTable

rules = RuleTable("numpy")
