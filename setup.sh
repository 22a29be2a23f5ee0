#!/bin/sh
# Make the environment: a virtual environment with the pinned packages and this project in it.
# Where Python or its venv module is missing and the machine lets us, Debian's packages bring them.
# With a third word: what some tests need on top, as far as it can be had; `spark`, or `browser`.
# With `oldest`: the oldest packages that the project allows, instead of the newest.
set -eu
python=$1
venv=$2
extra=${3-}
requirements=requirements.txt
[ "$extra" = oldest ] && requirements=requirements-oldest.txt

if [ "$extra" = spark ]; then
  "$venv/bin/python" -m pip install -q --disable-pip-version-check -r requirements-spark.txt ||
    echo "PySpark could not be installed: the tests of Spark are skipped." >&2
  if ! "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version >/dev/null 2>&1 &&
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless ||
      echo "Java could not be installed: the tests of Spark are skipped." >&2
  fi
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
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv
    python=python3
  fi
  usable "$python" || {
    echo "Python 3.11 or newer, with its venv module, is needed (Debian: python3-venv)." >&2
    exit 1
  }
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$requirements"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
# As the installation of a package does; Python itself does not where it is told to write no bytecode.
"$venv/bin/python" -m compileall -q dissector analysis
