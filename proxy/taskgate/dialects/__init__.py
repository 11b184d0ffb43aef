"""How each era says it. Pure translators around the neutral words of `tasks`; no era knows the other."""
