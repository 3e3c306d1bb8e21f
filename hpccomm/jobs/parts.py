"""The pieces of bash that jobs are made of; the catalogue says which job has which.

They hand on to each other: `ranks`, `per_node` and `cpus`, `python` (a command that runs hpccomm's python once),
`start` (what starts the ranks, but for their number), `json` and `arguments` (of what they run). The catalogue fills in
words in <brackets>.
"""

from __future__ import annotations

BEGIN = r"""
fail() { # STATUS ASKED FOUND DO
    printf '%s\n  found: %s\n  do:    %s\n' "$2" "$3" "$4" >&2
    exit "$1"
}

[[ -n ${SLURM_JOB_ID:-} ]] || fail 2 'run a Slurm job' 'no SLURM_JOB_ID' "submit it: sbatch $0"

if ((${#MODULES[@]})); then
    set +u # modules may use variables that are not set
    module load "${MODULES[@]}"
    set -u
fi
"""

SIZES = r"""
per_node=${SLURM_NTASKS_PER_NODE:-1}
ranks=$((SLURM_JOB_NUM_NODES * per_node))
((${SLURM_NTASKS:-$ranks} == ranks)) || fail 2 "run $SLURM_NTASKS tasks" \
    "$SLURM_JOB_NUM_NODES nodes of $per_node tasks, which makes $ranks" \
    'give sbatch --nodes and --ntasks-per-node, and no --ntasks'
cpus=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus}
"""

GPUS = r"""
gpus=${SLURM_GPUS_ON_NODE:-0}
((gpus == per_node)) || fail 2 'run one task a GPU' "$gpus GPUs and $per_node tasks on $HOSTNAME" \
    'give sbatch equal --gpus-per-node and --ntasks-per-node'
"""

GPUS_IF_ANY = r"""
gpus=${SLURM_GPUS_ON_NODE:-0}
((gpus == 0 || gpus == per_node)) || fail 2 'run one task a GPU' "$gpus GPUs and $per_node tasks on $HOSTNAME" \
    'give sbatch equal --gpus-per-node and --ntasks-per-node'
"""

PYTHON = r"""
command -v "$PYTHON" >/dev/null || fail 127 "run $PYTHON" "no such command on $HOSTNAME" \
    'call sbatch where hpccomm'\''s environment is active, or edit PYTHON'
python=("$PYTHON")
why=$("${python[@]}" -c 'import hpccomm' 2>&1) || fail 1 "import hpccomm in $PYTHON" "${why##*$'\n'}" \
    'call sbatch where hpccomm'\''s environment is active, or edit PYTHON'
"""

_IN_IMAGE = r"""why=$("${python[@]}" -c 'import hpccomm' 2>&1) || fail 1 "import hpccomm in $PYTHON" "$why" \
    'install hpccomm in the image, or edit PYTHON or IMAGE'
"""

APPTAINER = (
    r"""
runtime=$(command -v apptainer || command -v singularity) || fail 127 "run $IMAGE" \
    "neither apptainer nor singularity on $HOSTNAME" 'load its module: edit MODULES'
[[ $IMAGE == *://* || -e $IMAGE ]] || fail 2 "run the image $IMAGE" "no such file in $PWD" 'edit IMAGE'
options=(--bind "$PWD" --pwd "$PWD")
((gpus == 0)) || options+=(--nv)
python=("$runtime" exec "${options[@]}" "${CONTAINER_OPTIONS[@]}" "$IMAGE" "$PYTHON")
"""
    + _IN_IMAGE
)

PYXIS = (
    r"""
[[ $(srun --help 2>&1) == *--container-image* ]] || fail 2 "run the image $IMAGE" \
    'no srun --container-image: this Slurm has no Pyxis' 'take the job for Apptainer, or ask the site for Pyxis'
options=(--container-image="$IMAGE" --container-mounts="$PWD:$PWD" --container-workdir="$PWD")
options+=("${CONTAINER_OPTIONS[@]}")
python=(srun --nodes=1 --ntasks=1 --mpi=none --export=ALL "${options[@]}" "$PYTHON")
"""
    + _IN_IMAGE
)

SRUN = r"""
export SRUN_CPUS_PER_TASK=$cpus # from Slurm 22.05 on srun does not take it from sbatch
plugin=$MPI_PLUGIN
[[ -n $plugin ]] || plugin=$(srun --mpi=list 2>&1 | "${python[@]}" -m hpccomm.jobs plugin)
start=(srun --mpi="$plugin" --kill-on-bad-exit=1 --export=ALL)
"""

MPIRUN = r"""
# mpirun starts a daemon on each node by srun, which would give it the CPUs of one task, or after --export=NONE no PATH.
unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_EXPORT_ENV

beside=$(dirname "$(command -v "$PYTHON")")/mpirun
[[ -n $MPIRUN || ! -x $beside ]] || MPIRUN=$beside
MPIRUN=${MPIRUN:-mpirun}
version=$("$MPIRUN" --version 2>&1) || fail 127 "run $MPIRUN" "$version" 'edit MPIRUN or MODULES'
mapfile -t names < <(compgen -e |
    grep -E '^(HPCCOMM|OMP|MKL|NCCL|GLOO|TORCH|UCX|FI)_|^(PATH|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV)$')
start=("$MPIRUN")
case $version in
*'Open MPI'* | *OpenRTE*)
    ((${#MPIRUN_OPTIONS[@]})) || MPIRUN_OPTIONS=(--map-by "ppr:$per_node:node" --bind-to none)
    for name in "${names[@]}"; do start+=(-x "$name"); done
    ;;
*HYDRA* | *'Intel(R) MPI'*)
    ((${#MPIRUN_OPTIONS[@]})) || MPIRUN_OPTIONS=(-ppn "$per_node")
    start+=(-genvlist "$(IFS=, && echo "${names[*]}")")
    ;;
*) fail 2 "start ranks with $MPIRUN" "neither Open MPI nor Hydra: ${version%%$'\n'*}" 'take the job for srun' ;;
esac
start+=("${MPIRUN_OPTIONS[@]}")
"""

BENCH = r"""
mkdir -p "$RESULTS"
json=$RESULTS/<job>-$SLURM_JOB_ID.json
arguments=(<first>"${ARGUMENTS[@]}" "$@")
((${#BACKENDS[@]} == 0)) || arguments+=(--backend "${BACKENDS[@]}")
"""

TRAIN = r"""
[[ -e $PROGRAM ]] || fail 2 "train with $PROGRAM" "no such file in $PWD" \
    'call sbatch in the folder from which that path leads to it, or edit PROGRAM'
mkdir -p "$RESULTS"
json=$RESULTS/<job>-$SLURM_JOB_ID.json
checkpoint=${json%.json}.pt # the same after a requeue
arguments=("$PROGRAM" --checkpoint "$checkpoint" "${ARGUMENTS[@]}" "$@")
"""

CASE = r"""
case=$SLURM_ARRAY_TASK_ID
cases=$((${#BACKENDS[@]} * ${#SIZES[@]}))
((case < cases)) || fail 2 "measure case $case" "$cases cases: ${#BACKENDS[@]} backends times ${#SIZES[@]} sizes" \
    "give sbatch --array=0-$((cases - 1))"
backend=${BACKENDS[case / ${#SIZES[@]}]}
sizes=${SIZES[case % ${#SIZES[@]}]}
printf 'case %d of %d: %s from %s\n' "$case" "$cases" "$backend" "$sizes"

folder=$RESULTS/sweep-$SLURM_ARRAY_JOB_ID
mkdir -p "$folder"
json=$folder/case-$case-of-$cases.json
arguments=("${ARGUMENTS[@]}" "$@" --backend "$backend" -b "${sizes%%:*}" -e "${sizes##*:}")
"""

RUN = r"""
rm -f "$json"
status=0
"${start[@]}" -n "$ranks" <python> -m hpccomm.bench "${arguments[@]}" --json "$json" || status=$?
((status == 0)) || fail "$status" "measure on $ranks ranks" "${start[0]##*/} ended with status $status" \
    "see the cause above; what was measured before it is in $json"
# mpirun may end with 0 after a node was lost, and ranks that nobody joined run alone: the results must show it.
"${python[@]}" -m hpccomm.jobs verify "$json" --ranks "$ranks"
"""

IN_FRONT = r"""
    "${start[@]}" -n "$ranks" -w "$list" "${python[@]}" "${arguments[@]}" --json "$json" || status=$?
"""

BEHIND = r"""
    # Warned after the last launch, there is nothing to save; where Slurm does not requeue the job, it goes on.
    [[ -z ${missed:-} ]] || ! scontrol requeue "$SLURM_JOB_ID" || exit 1
    "${start[@]}" -n "$ranks" "${python[@]}" "${arguments[@]}" --json "$json" &
    launched=$!
    # Slurm warns this shell, perhaps more than once; mpirun hands it on to the ranks, and goes on.
    trap 'warned=yes; kill -USR1 "$launched" 2>/dev/null || missed=yes' USR1
    while status=0 warned=; wait "$launched" || status=$?; [[ -n $warned ]]; do :; done
"""

RELAUNCH = r"""
nodes=$((SLURM_JOB_NUM_NODES - SPARES))
((nodes > 0)) || fail 2 "train with $SPARES spare nodes" "$SLURM_JOB_NUM_NODES nodes in all" \
    'give sbatch more --nodes, or edit SPARES'
export SLURM_OVERLAP=1 # else what is left of a lost step would hold the CPUs of the next one
one_task=(srun --mpi=none --mem=0 -N 1 -n 1)

allotted() { # print this job's hosts; none where Slurm is ending it
    squeue --noheader --states=RUNNING --jobs="$SLURM_JOB_ID" --format=%N | xargs -r scontrol show hostnames
}

answering() { # print those that run a task: Slurm takes minutes to see that a host is lost
    allotted | xargs -r -P 32 -I @ timeout -k 5 20 "${one_task[@]}" -w @ printenv SLURMD_NODENAME | sort -V
}

guard() { # HOST: with --no-kill the job would stand idle without that of this script; another one has it requeued
    trap '' USR1
    while sleep 20; do
        hosts=$(allotted) || continue
        [[ -z $hosts ]] || grep -qxF "$1" <<<"$hosts" || scontrol requeue "$SLURM_JOB_ID"
    done
}

saved() { stat --format=%i-%Y "$checkpoint" 2>/dev/null || true; }

mapfile -t all < <(allotted)
progress=start
status=1
for ((launch = 1; ; launch++)); do
    mapfile -t hosts < <(answering)
    lost=$(printf '%s\n' "${all[@]}" | grep -vxFf <(printf '%s\n' "${hosts[@]}") | paste -sd ' ') || true
    # Where no host is lost and nothing was saved, it would end as it did.
    if ((${#hosts[@]} == 0 || launch > RELAUNCHES + 1)) || [[ -z $lost$progress ]]; then
        fail "$status" "train in job $SLURM_JOB_ID" \
            "launch $((launch - 1)) ended with status $status; hosts that run tasks: ${hosts[*]:-none}" \
            "see the cause above; submitted again with --checkpoint $checkpoint it goes on from the last one"
    fi
    used=("${hosts[@]:0:nodes}")
    ranks=$((${#used[@]} * per_node))
    list=$(IFS=, && echo "${used[*]}")
    if ((launch > 1)) || [[ -n $lost ]]; then
        printf 'LOST %s: launch %d of at most %d, with %d ranks on %s, checkpoint %s\n' \
            "${lost:-no host}" "$launch" $((RELAUNCHES + 1)) "$ranks" "$list" "$checkpoint" >&2
    fi

    # As if these were all the job's hosts: mpirun looks here for them, and srun for their number.
    export SLURM_JOB_NODELIST=$list SLURM_NODELIST=$list SLURM_JOB_NUM_NODES=${#used[@]} SLURM_NNODES=${#used[@]}
    export SLURM_TASKS_PER_NODE="$per_node(x${#used[@]})" SLURM_NTASKS=$ranks SLURM_NPROCS=$ranks
    other=$(printf '%s\n' "${hosts[@]}" | grep -vxF "$SLURMD_NODENAME" | tail -n 1) || true
    [[ -z $other ]] || "${one_task[@]}" -w "$other" \
        bash -c "$(declare -f allotted guard); guard '$SLURMD_NODENAME'" &>/dev/null &
    before=$(saved)
    rm -f "$json"
    status=0
<run>
    # mpirun may end with 0 after a node was lost, and ranks that nobody joined run alone: the results must show it.
    if ((status == 0)); then
        "${python[@]}" -m hpccomm.jobs verify "$json" --ranks "$ranks" && exit
        status=1
    fi
    progress=$(saved)
    [[ $progress != "$before" ]] || progress=''
done
"""

COLLECT = r"""
sweep=${1:-$SWEEP}
[[ -n $sweep ]] || fail 2 'collect the results of a sweep' 'no number of its job' \
    'give it behind the script (sbatch ... sweep-collect.sbatch NUMBER), or edit SWEEP'
"${python[@]}" -m hpccomm.jobs collect "$RESULTS/sweep-$sweep"
"""
