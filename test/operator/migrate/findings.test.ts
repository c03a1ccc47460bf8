import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  type Finding,
  judgeCertificate,
  judgeElection,
  judgeLease,
  judgePodSecurity,
  judgePorts,
  judgeRights,
  rightsIn,
} from '#src/operator/migrate/findings.ts';
import type { Workload } from '#src/operator/migrate/provisioner.ts';
import { makeCertificates } from '../../harness/csi-certificates.ts';
import { readYaml } from '../../harness/real-manifests.ts';

function workload(spec: object = {}, pod: object = {}): Workload {
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'shop' },
    spec: { ...spec, template: { spec: { containers: [], ...pod } } },
  };
}

const textOf = (findings: readonly Finding[]): string =>
  findings.map(({ kind, text }) => `${kind}: ${text}`).join('\n');

describe('the Lease before a migration', () => {
  const judge = (holder: string | undefined, pod: object = {}): string =>
    textOf([judgeLease(workload({}, pod), { holder, durationMs: 15_000, title: 'ns/d' })]);

  it('does not stand in the way while a pod of the workload holds it', () => {
    assert.match(judge('shop-5d8-x'), /^note: .*is free .* 15 s after it has ended$/);
  });
  it('does not stand in the way while a node holds it whose network the pod has', () => {
    assert.match(judge('node-1', { hostNetwork: true }), /^note: /);
  });
  it('does not stand in the way while sutler holds it, or nobody', () => {
    assert.equal(judge('sutler_a_1'), 'note: sutler holds the Lease ns/d');
    assert.equal(judge(undefined), 'note: the Lease ns/d is free');
  });
  it('stands in the way while another provisioner holds it', () => {
    assert.match(judge('other-0'), /^wrong: other-0 holds .*kubectl get pods -A \| grep other-0/);
  });
});

describe('a provisioner without leader election', () => {
  const none = { hasElection: false, isNodeDeployment: false } as Parameters<
    typeof judgeElection
  >[1];
  const judge = (spec: object): string => textOf(judgeElection(workload(spec), none, 'ns'));

  it('stands in the way where its pod goes on beside the new one', () => {
    assert.match(judge({ replicas: 1 }), /^wrong: .*-n ns scale deployment\/shop --replicas=0$/);
  });
  it('does not where the pod ends first', () => {
    assert.equal(judge({ strategy: { type: 'Recreate' } }) + judge({ replicas: 0 }), '');
  });
});

describe('the certificate of the gateway before a migration', () => {
  let folder: string;
  let data: Record<string, string>;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sutler-findings-'));
    await makeCertificates(folder, 'DNS:shop.ns.svc');
    const read = async (file: string) => (await readFile(join(folder, file))).toString('base64');
    data = {
      'ca.crt': await read('ca.crt'),
      'tls.crt': await read('gateway.crt'),
      'tls.key': await read('gateway.key'),
    };
  });
  after(() => rm(folder, { recursive: true }));
  const judge = (given: object | undefined, name = 'shop.ns.svc', nowMs = Date.now()): string =>
    textOf(
      judgeCertificate(given === undefined ? undefined : { data: given }, {
        title: 'ns/shop-tls',
        name,
        nowMs,
        mend: 'make it',
      }),
    );

  it('has nothing to mend where it is for the Service', () => assert.equal(judge(data), ''));
  it('is missing without its Secret', () => {
    assert.equal(judge(undefined), 'wrong: there is no Secret ns/shop-tls: make it');
  });
  it('lacks what the Secret lacks', () => {
    assert.match(judge({ 'ca.crt': 'x' }), /lacks tls\.crt, tls\.key: make it/);
  });
  it('is refused where it can’t be read', () => {
    assert.match(judge({ ...data, 'tls.crt': 'x' }), /tls\.crt .* is no certificate/);
  });
  it('is refused for another name', () => {
    assert.match(judge(data, 'other.ns.svc'), /is not for other\.ns\.svc/);
  });
  it('is refused when it has expired', () => {
    assert.match(judge(data, 'shop.ns.svc', Date.now() + 3 * 86_400_000), /has expired: make it/);
  });
});

describe('the Pod Security of the namespace before a migration', () => {
  const judge = (level: string | undefined, user: number | undefined): string =>
    textOf(judgePodSecurity(level, { user, namespace: 'ns', workload: workload() }, 'out'));

  it('does not admit root under restricted', () => {
    assert.match(judge('restricted', undefined), /^wrong: .*runAsUser .*enforce=baseline/);
  });
  it('admits root under baseline, and other users under restricted', () => {
    assert.equal(judge('baseline', 0) + judge(undefined, 0) + judge('restricted', 1000), '');
  });
});

describe('the ports of the gateway before a migration', () => {
  const subject = { workload: workload(), namespace: 'ns', ports: { gateway: 23808, http: 23809 } };
  const judge = (name: string, spec: object): string =>
    textOf(judgePorts(subject, [{ metadata: { namespace: 'ns', name }, spec }], 'out'));
  const containers = [{ ports: [{ containerPort: 23809 }] }];

  it('are taken by another pod with the network of its node', () => {
    assert.match(
      judge('other-1', { hostNetwork: true, containers }),
      /^wrong: the pod ns\/other-1/,
    );
  });
  it('are free beside a pod with a network of its own, and one of the workload', () => {
    assert.equal(judge('other-1', { containers }), '');
    assert.equal(judge('shop-1', { hostNetwork: true, containers }), '');
  });
});

describe('the rights of ingest and jobs before a migration', () => {
  const rights = rightsIn(readYaml('base/rbac-jobs.yaml') as Readonly<Record<string, unknown>>[]);

  it('are those of the roles that bindings give', () => {
    const namespaces = { verb: 'get', group: '', resource: 'namespaces', name: 'kube-system' };
    const found = (wanted: object) =>
      rights.some((right) => JSON.stringify(right) === JSON.stringify(wanted));
    assert.ok(found({ account: 'sutler-jobs', ...namespaces }));
    const lease = { verb: 'watch', group: 'coordination.k8s.io', resource: 'leases' };
    assert.ok(found({ account: 'sutler-jobs', namespace: 'sutler', ...lease }));
  });
  it('are named with what grants them where they are missing', () => {
    assert.match(
      textOf(judgeRights(rights, 'base')),
      /^wrong: .*sutler\/sutler-jobs may not get persistentvolumeclaims and \d+ more: .*k8s\/base/,
    );
  });
});
