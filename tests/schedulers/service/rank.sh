#!/bin/bash
# A rank that logs its place, when it began and when it ended: rank.sh FOLDER SECONDS.
log=$1/$SLURM_JOB_ID.$RANK
visible=${MESHWRIGHT_DEVICES:-$CUDA_VISIBLE_DEVICES}
echo "meshwright-rank[rank=$RANK world=$WORLD_SIZE host=$SLURMD_NODENAME local_rank=$LOCAL_RANK visible=$visible]" >"$log"
echo "$EPOCHREALTIME $$" >>"$log"
sleep "$2"
echo "$EPOCHREALTIME" >>"$log"
