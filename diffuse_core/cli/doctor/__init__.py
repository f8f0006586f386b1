"""`diffuse doctor`: what keeps Diffuse from working here, and what to do about it.

Facts are gathered (`*_facts`, `dialled`, `looking`, adapters.checkup) apart from what is made of
them (`judge_*`, pure). `checks` puts both together; `checking` runs them.
"""

from diffuse_core.cli.doctor.command import doctor

__all__ = ["doctor"]
