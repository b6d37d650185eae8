collect_ignore = ["fuzz.py"]  # needs atheris, which `make test-fuzz` installs
