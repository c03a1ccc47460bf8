import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  referenceGrants,
  type Resource,
  storageCapacities,
  volumeAttributesClasses,
} from '#src/kube/resources.ts';
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
import { judgeImages, judgeServer, neededKinds } from '#src/operator/migrate/versions.ts';
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
    textOf([
      judgeLease(
        { workload: workload({}, pod), isServed: false },
        { holder, durationMs: 15_000, title: 'ns/d' },
      ),
    ]);

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

describe('the Lease after a migration', () => {
  it('has to be held', () => {
    const served = { workload: workload(), isServed: true };
    const free = { holder: undefined, durationMs: 15_000, title: 'ns/d' };
    assert.match(textOf([judgeLease(served, free)]), /^wrong: nobody holds the Lease ns\/d, so/);
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

describe('the API server before a migration', () => {
  const judge = (version: string, section: Record<string, string>, absent: Resource[] = []) => {
    const needs = neededKinds(new Map(Object.entries(section).map(([k, v]) => [k, [v]])));
    const kinds = new Set(needs.map(({ kind }) => kind).filter((kind) => !absent.includes(kind)));
    return textOf(judgeServer({ version, kinds }, needs));
  };

  it('has what is used, with the oldest version that has it too', () => {
    const title = 'note: the API server is v1.36.3; what is used of it is there since Kubernetes';
    assert.equal(judge('v1.36.3', {}), `${title} 1.22`);
    assert.equal(judge('v1.36.3', { 'enable-capacity': 'true' }), `${title} 1.24`);
    const gates = { 'feature-gates': 'Topology=true,VolumeAttributesClass=true' };
    assert.equal(judge('v1.36.3', gates), `${title} 1.34`);
  });
  it('is too old without endPort in NetworkPolicies', () => {
    assert.match(
      judge('v1.21.14-eks-1', {}),
      /^wrong: .*endPort.*: upgrade it to 1\.22 or later$/m,
    );
  });
  it('lacks a kind that an argument asks for', () => {
    assert.match(
      judge('v1.23.4', { 'enable-capacity': 'true' }, [storageCapacities]),
      /^wrong: .*csistoragecapacities of storage\.k8s\.io\/v1.*upgrade it to 1\.24, or take the flag/m,
    );
    assert.match(
      judge('v1.36.3', { 'feature-gates': 'CrossNamespaceVolumeDataSource=true' }, [
        referenceGrants,
      ]),
      /^wrong: .*referencegrants of gateway\.networking\.k8s\.io\/v1beta1.*install/m,
    );
  });
  it('does not stand in the way without a kind that only some claims ask for', () => {
    const said = judge('v1.33.0', {}, [volumeAttributesClasses]);
    assert.doesNotMatch(said, /^wrong/m);
    assert.match(said, /^note: .*volumeattributesclasses .* only for claims that name one/m);
  });
});

describe('the image of the gateway before a migration', () => {
  const running = new Map([['sutler-ingest', 'example.com/sutler:0.1.0']]);
  it('is that of ingest and jobs', () => {
    assert.equal(textOf(judgeImages(running, 'example.com/sutler:0.1.0')), '');
    assert.match(
      textOf(judgeImages(running, 'sutler:0.2.0')),
      /--image=example\.com\/sutler:0\.1\.0,/,
    );
  });
});

describe('the rights of ingest and jobs before a migration', () => {
  const rights = rightsIn(readYaml('base/rbac-jobs.yaml') as Readonly<Record<string, unknown>>[]);

  it('are those of the roles that bindings give', () => {
    const byName = readYaml('secrets-by-name/rbac.yaml') as Readonly<Record<string, unknown>>[];
    const all = [...rights, ...rightsIn(byName)].map((right) => JSON.stringify(right));
    const account = 'sutler-jobs';
    for (const wanted of [
      { account, verb: 'create', group: '', resource: 'events' },
      {
        account,
        namespace: 'sutler',
        verb: 'watch',
        group: 'coordination.k8s.io',
        resource: 'leases',
      },
      {
        account,
        namespace: 'storage-secrets',
        verb: 'get',
        group: '',
        resource: 'secrets',
        name: 'driver-credentials',
      },
    ])
      assert.ok(all.includes(JSON.stringify(wanted)), JSON.stringify(wanted));
  });
  it('are named with what grants them where they are missing', () => {
    assert.match(
      textOf(judgeRights(rights, { folder: 'base', isNeeded: true })),
      /^wrong: .*sutler\/sutler-jobs may not get persistentvolumeclaims and \d+ more: .*k8s\/base/,
    );
  });
  it('do not stand in the way where only topology needs them, and nobody knows of any', () => {
    assert.match(
      textOf(judgeRights(rights, { folder: 'topology', isNeeded: false })),
      /^note: if the driver has topology .*may not .*k8s\/topology/,
    );
  });
});
