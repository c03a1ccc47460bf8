import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { allFlags, processes } from '#src/processes.ts';
import { parseFlags } from '#src/runtime/flags.ts';
import { retiredFlags, unusedFlags } from '#src/runtime/retired-flags.ts';

/* The command line of external-provisioner v6 (spec 01 §2 to §4), each flag with a value that it takes there. */
const UPSTREAM =
  `--master=https://127.0.0.1:6443 --volume-name-prefix=pvc --volume-name-uuid-length=-1 --retry-interval-start=1s --retry-interval-max=5m --worker-threads=100
  --cloning-protection-threads=1 --snapshot-orphan-sweep-interval=5m --capacity-threads=1 --timeout=10s --strict-topology --immediate-topology=false --extra-create-metadata=true --enable-pprof
  --default-fstype=ext4 --kube-api-capacity-qps=1 --kube-api-capacity-burst=5 --enable-capacity --capacity-for-immediate-binding --capacity-poll-interval=1m --capacity-ownerref-level=-1
  --node-deployment --node-deployment-immediate-binding=false --node-deployment-base-delay=20s --node-deployment-max-delay=60s --controller-publish-readonly --prevent-volume-mode-conversion=false
  --feature-gates=Topology=true,AllAlpha=false --kubeconfig=/config --csi-address=/run/csi/socket --leader-election --leader-election-namespace=ns --leader-election-lease-duration=15s
  --leader-election-renew-deadline=10s --leader-election-retry-period=5s --leader-election-labels=a:b --kube-api-qps=5 --kube-api-burst=10 --http-endpoint=127.0.0.1:0 --metrics-address=127.0.0.1:0
  --metrics-path=/metrics --automaxprocs --logging-format=json --log-flush-frequency=5s -v=5 --vmodule=a=1 --log-text-split-stream --log-text-info-buffer-size=0 --log-json-split-stream
  --log-json-info-buffer-size=0`.split(/\s+/);

const retired = { ...retiredFlags, ...unusedFlags };
const parse = (name: string, argv: readonly string[]) => {
  const table = processes[name]?.flags ?? {};
  return parseFlags(table, { argv, env: {}, known: allFlags, retired });
};

describe('the command line of external-provisioner', () => {
  for (const name of ['ingest', 'jobs', 'csi-gateway', 'all']) {
    it(`is accepted whole by ${name}`, () => assert.equal(parse(name, UPSTREAM).kind, 'run'));
  }

  it('says of each flag without effect what that means (R-37, Q-51, Q-60)', () => {
    for (const flag of [
      '--metrics-address=:1',
      '--enable-pprof',
      '--automaxprocs',
      '--automaxprocs=false',
      '--automaxprocs=maybe',
      '--enable-capacity',
      '--strict-topology',
    ]) {
      const parsed = parse('jobs', [flag]);
      assert.ok(parsed.kind === 'run');
      assert.match(parsed.warnings.join(), /^--[a-z-]+ is accepted and ignored: ./, flag);
    }
  });

  it('names no flag that some process reads', () => {
    assert.deepEqual(
      Object.keys(unusedFlags).filter((name) => Object.hasOwn(allFlags, name)),
      [],
    );
  });
});
