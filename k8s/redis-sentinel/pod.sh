#!/bin/sh
# Starts Redis or Sentinel in a pod of the StatefulSet sutler-redis, and answers their probes.
#
#   pod.sh redis | sentinel | alive PORT | redis-ready | sentinel-ready
#
# Only the Sentinels know which Redis is the master; each has that in a file on its pod's volume,
# with the epoch of the failover that chose it. Redis asks all three and goes by the latest epoch:
# - Two have to answer, since one alone may not know of the last failover.
# - Named as the master, a Redis without data waits until they name another: its replicas would
#   copy that it has none. So does one with data while another Redis has just become the master.
# - A Redis without data begins as a replica only where the master answers, so that it gets its
#   data at once, and nobody takes it for one that has some.
# - Where no Sentinel knows a master, the first pod begins as the master, if none of the pods has
#   data: until then a Sentinel without a file runs and watches nothing, and the Sentinel of a pod
#   with data does not run. A pod with data, such as a restored one, begins if the others have none.
#
# PODS are the names of all pods, the first one first; POD is the name of this one.
set -eu
umask 077
secrets=/etc/sutler/redis-secrets
settings=/etc/sutler/redis-sentinel
run=/run/redis
data=/data/redis
file=/data/sentinel.conf
self=127.0.0.1
REDISCLI_AUTH=$(cat $secrets/sentinel-password)
export REDISCLI_AUTH
# Process 1 of a container ends by no signal that it does not handle.
trap 'exit 1' TERM

# ask HOST PORT COMMAND...: the answer, a field a line; nothing if there is none
ask() {
  host=$1 port=$2
  shift 2
  timeout 3 redis-cli --tls --cacert /etc/sutler/redis-tls/ca.crt --user sutler-sentinel \
    -h "$host" -p "$port" "$@" 2>/dev/null | tr -d '\r'
}

has_data() { [ -d $data/appendonlydir ]; }

is_master() { [ "$(ask "$1" 6379 role | head -n 1)" = master ]; }

# add_passwords FILE USER=KEY...: the users of FILE, with the passwords that the Secret has
add_passwords() {
  users=$(cat "$1")
  shift
  for pair in "$@"; do
    users=$(echo "$users" | sed "s/^user ${pair%=*} on/& >$(cat "$secrets/${pair#*=}-password")/")
  done
  echo "$users"
}

# Asks all Sentinels. Sets $answered and $ignorant, how many did and how many of them know no
# master, and $master with its $epoch, if one does.
ask_sentinels() {
  answers=$(
    for pod in $PODS; do
      ask "$pod" 26379 sentinel master main | awk '
        /No such master/ { print "none" }
        field == "ip" { host = $0 }
        field == "config-epoch" { print $0, host }
        { field = $0 }'
    done
  )
  answered=$(echo "$answers" | grep -c . || true)
  ignorant=$(echo "$answers" | grep -c none || true)
  # The latest epoch, and what most of those say that have it.
  set -- $(echo "$answers" | grep -v none | sort | uniq -c | sort -k 2,2nr -k 1,1nr | head -n 1)
  epoch=${2:-0} master=${3:-}
}

# Whether Redis may begin, as the $master or as its replica.
may_begin() {
  ask_sentinels
  if [ -z "$master" ]; then
    master=$POD
    if has_data; then
      [ "$ignorant" -ge 2 ]
    else
      [ "$ignorant" -eq 3 ] && [ "$POD" = "${PODS%% *}" ]
    fi
  elif [ "$answered" -lt 2 ]; then
    return 1
  elif [ "$master" = "$POD" ]; then
    has_data || return 1
    for pod in $PODS; do
      ! is_master "$pod" || return 1
    done
  else
    has_data || is_master "$master"
  fi
}

start_redis() {
  touch $run/waiting-6379
  until may_begin; do sleep 1; done
  mkdir -p $data
  {
    add_passwords /etc/sutler/redis-users/users.acl sutler-ingest=ingest sutler-jobs=jobs \
      sutler-dashboard=dashboard sutler-operator=operator
    add_passwords $settings/redis-users.acl sutler-replica=replica sutler-sentinel=sentinel
  } >$run/redis-users.acl
  {
    cat $settings/redis.conf
    echo "replica-announce-ip $POD"
    echo "masterauth $(cat $secrets/replica-password)"
    # The rest is for buffers of replicas, and for rewriting the append-only file.
    echo "maxmemory $((MEMORY_LIMIT / 4 * 3))"
    [ "$master" = "$POD" ] || echo "replicaof $master 6379"
  } >$run/redis.conf
  rm $run/waiting-6379
  exec redis-server $run/redis.conf
}

# Its id is made of its name: with a new one after each loss of its file, the Sentinels would count
# those that are gone, and need their votes.
id_of() { printf %s "$1" | sha1sum | cut -c 1-40; }

start_sentinel() {
  add_passwords $settings/sentinel-users.acl sutler-client=client sutler-sentinel=sentinel \
    >$run/sentinel-users.acl
  touch $run/waiting-26379
  [ -f $file ] || find_master
  state=$(grep -E '^sentinel (monitor|(config|leader|current)-epoch) ' $file)
  master=$(echo "$state" | awk '$2 == "monitor" { print $4 }')
  password=$(cat $secrets/sentinel-password)
  {
    cat $settings/sentinel.conf
    echo "sentinel myid $(id_of "$POD")"
    echo "sentinel announce-ip $POD"
    echo "sentinel sentinel-user sutler-sentinel"
    echo "sentinel sentinel-pass $password"
    echo "$state"
    echo "sentinel auth-user main sutler-sentinel"
    echo "sentinel auth-pass main $password"
    echo "sentinel down-after-milliseconds main 5000"
    # A failover that fails is tried again after twice this time.
    echo "sentinel failover-timeout main 5000"
    for pod in $PODS; do
      [ "$pod" = "$master" ] || echo "sentinel known-replica main $pod 6379"
      [ "$pod" = "$POD" ] || echo "sentinel known-sentinel main $pod 26379 $(id_of "$pod")"
    done
  } >$file.new
  mv $file.new $file
  rm $run/waiting-26379
  exec redis-server $file --sentinel
}

# Writes which master the others name, or that the Redis of this pod began as the first one.
find_master() {
  ignorant_sentinel=
  if ! has_data; then
    # Sentinel writes its file.
    cat $settings/sentinel.conf >$run/ignorant.conf
    redis-server $run/ignorant.conf --sentinel &
    ignorant_sentinel=$!
  fi
  until knows_master; do sleep 1; done
  [ -z "$ignorant_sentinel" ] || { kill "$ignorant_sentinel" && wait "$ignorant_sentinel" || true; }
  {
    echo "sentinel monitor main $master 6379 2"
    echo "sentinel config-epoch main $epoch"
    echo "sentinel current-epoch $epoch"
  } >$file.new
  mv $file.new $file
}

knows_master() {
  ask_sentinels
  [ -n "$master" ] && return
  is_master $self && master=$POD
}

case $1 in
  redis) start_redis ;;
  sentinel) start_sentinel ;;
  # While it waits, and while it loads its data, a restart would not help.
  alive) [ -e "$run/waiting-$2" ] || ask $self "$2" ping | grep -Eq '^(PONG|LOADING)' ;;
  # A replica that has the data; a master whose data one has.
  redis-ready)
    ask $self 6379 info replication |
      grep -Eq '^(master_link_status:up|min_slaves_good_slaves:[12])'
    ;;
  sentinel-ready) ask $self 26379 sentinel ckquorum main | grep -q '^OK' ;;
esac
