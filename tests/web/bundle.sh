#!/usr/bin/env bash
# Builds the page anew and compares it with what is committed in web/dist. Prints one line per file for ./test. What it
# is built with was checked by its digest on installation: the lockfile has one for every package that is there.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../web" || exit 1
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
node -e '
  const installed = Object.entries(require("./node_modules/.package-lock.json").packages);
  const digests = Object.entries(require("./package-lock.json").packages);
  const known = new Map(digests.map(([name, one]) => [name, one.integrity]));
  const unknown = installed.filter(([name]) => !known.get(name)).map(([name]) => name);
  const what = `the lockfile has a digest of all ${installed.length} packages installed`;
  console.log(installed.length > 0 && unknown.length === 0 ? `ok - ${what}` : `not ok - ${what}\n  ${unknown}`);'
if npx --no-install tsc --noEmit; then echo "ok - types of the page"; else echo "not ok - types of the page"; fi
if ! npx --no-install vite build --outDir "$fresh" --emptyOutDir --logLevel error; then
  echo "not ok - build of the page"
  exit 1
fi
for name in $(cd "$fresh" && find . -type f | sort) $(cd dist && find . -type f | sort); do
  [ -e "$fresh/.seen-${name##*/}" ] && continue
  touch "$fresh/.seen-${name##*/}"
  if cmp -s "$fresh/$name" "dist/$name"; then
    echo "ok - web/dist/${name#./} is what web/src gives"
  else
    echo "not ok - web/dist/${name#./} differs from what web/src gives; npm run build in web/ makes it anew"
  fi
done
