# Puts the text of stdin below the title of the changelog; a file that is not there begins with a title.
set -eu
file={{ inputs.file }}
new=$(mktemp)
trap 'rm -f "$new"' EXIT
[ -e "$file" ] || printf '# Changelog\n' > "$file"
section=$(cat)
{
  head -n 1 "$file"
  printf '\n%s\n' "$section"
  tail -n +2 "$file"
} > "$new"
cat "$new" > "$file"
