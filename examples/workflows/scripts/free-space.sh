# Says as JSON how many percent of the disk that this directory is on are free.
set -eu
used=$(df -P . | awk 'NR == 2 { sub("%", "", $5); print $5 }')
printf '{"free": %d}\n' "$((100 - used))"
