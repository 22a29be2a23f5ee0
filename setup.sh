#!/bin/sh
# Make the environment: a virtual environment with this project and its development packages, as
# pinned in requirements.lock. On Debian, as root, install Python and a C compiler where they are
# missing.
#
#     setup.sh PYTHON VENV            this project and its extras
#     setup.sh PYTHON VENV oldest     the same and the groups `dev` and `spark`, with the oldest
#                                     packages that pyproject.toml allows
#     setup.sh PYTHON VENV newest     likewise with the newest packages
#     setup.sh PYTHON VENV dev        on top: the packages of the dependency group `dev`
#     setup.sh PYTHON VENV spark      on top: the group `spark`, and Java
#     setup.sh PYTHON VENV browser    on top: Chromium
set -eu
python=$1
venv=$2
extra=${3-}
pins=requirements.lock

install() { "$venv/bin/python" -m pip install -q --disable-pip-version-check -c "$pins" "$@"; }

if [ "$extra" = dev ]; then
  install --group dev
  exit
fi

if [ "$extra" = spark ]; then
  install --group spark || echo "PySpark could not be installed: the tests of Spark are skipped." >&2
  install --group connect || echo "The tests of Spark Connect are skipped." >&2
  if ! "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version >/dev/null 2>&1 &&
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless ||
      echo "Java could not be installed: the tests of Spark are skipped." >&2
  fi
  "$venv/bin/python" -m tests.analysis.spark.class_archive >/dev/null 2>&1 ||
    echo "Spark's classes could not be archived: each test that starts Spark takes longer." >&2
  exit
fi

if [ "$extra" = browser ]; then
  if ! { command -v chromium && command -v chromedriver; } >/dev/null &&
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver >/dev/null ||
      echo "Chromium could not be installed: the tests of reports in it are skipped." >&2
  fi
  exit
fi

usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if ! usable "$python"; then
  case $extra in
    oldest | newest) # another Python has other packages
      echo "$python is missing or unusable: name another with PYTHON_$extra=PATH." >&2
      exit 1
      ;;
  esac
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv >/dev/null
    python=python3
  fi
  usable "$python" || {
    echo "Python 3.11 or newer, with its venv module, is needed (Debian: python3-venv)." >&2
    exit 1
  }
fi
if ! command -v cc >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update -qq && apt-get install -y -qq gcc libc6-dev python3-dev >/dev/null; } ||
    echo "No C compiler could be installed: the loops run as Python." >&2
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
if [ "$extra" = newest ]; then
  pins=/dev/null
fi
install cython 'pip>=25.1' setuptools setuptools-scm # a pip that knows dependency groups; what builds the project
if [ "$extra" = oldest ]; then
  "$python" tools/lower_bounds.py >"$venv/oldest.txt"
  pins=$venv/oldest.txt
fi
if [ "$extra" ]; then
  install --group dev --group spark
fi
# `compat` adds a path; other modes add an import hook, which every command would load, unlike those
# of an installed package.
PYTHONWARNINGS=ignore install --no-build-isolation --config-settings editable_mode=compat \
  -e '.[browse,live,report,schemas,sql,tls]'
# As the installation of a package does; Python itself does not where it is told to write no bytecode.
"$venv/bin/python" -m compileall -q dissector analysis kafka_dissector
