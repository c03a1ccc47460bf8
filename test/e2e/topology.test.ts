import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Claim, Event, Volume } from '#src/kube/objects.ts';
import {
  claims,
  classes,
  csiNodes,
  events,
  nodes,
  type Resource,
  volumes,
} from '#src/kube/resources.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { isReady, type Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
const ZONES = ['a', 'b', 'c', 'd'];

/** A cluster with a node in each of four zones, and the processes of sutler. */
class ZonalBed {
  readonly bed: ProcessBed;
  /** What the driver was asked, by the name of the claim. */
  readonly #asked = new Map<string, CreateVolumeRequest>();
  #jobs: Running | undefined;

  private constructor(bed: ProcessBed) {
    this.bed = bed;
  }

  static async open(): Promise<ZonalBed> {
    let self: ZonalBed | undefined;
    const bed = await ProcessBed.open({
      pools: ZONES.map((zone) => ({
        name: zone,
        segments: { zone },
        capacityBytes: 1n << 40n,
      })),
      onCall({ method, request }) {
        if (method === 'CreateVolume') self?.note(request as CreateVolumeRequest);
        return undefined;
      },
    });
    self = new ZonalBed(bed);
    for (const zone of ZONES) await self.addNode(`node-${zone}`, zone);
    for (const [name, change] of [
      ['immediate', {}],
      ['late', { volumeBindingMode: 'WaitForFirstConsumer' }],
      ['in-b-and-d', { allowedTopologies: [allow('d', 'b')] }],
    ] as const)
      await self.#create(classes, { metadata: { name }, provisioner: DRIVER, ...change });
    const ingest = await bed.startIngest();
    await self.restartJobs();
    await until(() => isReady(ingest), 'ingest is ready');
    return self;
  }

  note(request: CreateVolumeRequest): void {
    this.#asked.set(request.parameters['csi.storage.k8s.io/pvc/name'] ?? '', request);
  }

  async restartJobs(...flags: readonly string[]): Promise<void> {
    await this.#jobs?.stop();
    const jobs = await this.bed.startJobs('--extra-create-metadata', ...flags);
    this.#jobs = jobs;
    await until(() => isReady(jobs), 'jobs is ready');
  }

  async addNode(name: string, zone: string): Promise<void> {
    await this.#create(nodes, { metadata: { name, labels: { zone } } });
    await this.addCsiNode(name);
  }

  async addCsiNode(name: string): Promise<void> {
    const drivers = [{ name: DRIVER, nodeID: name, topologyKeys: ['zone'] }];
    await this.#create(csiNodes, { metadata: { name }, spec: { drivers } });
  }

  /** @param node the node that the scheduler has selected */
  claim(name: string, storageClassName: string, node?: string): Promise<Claim> {
    const annotations = node === undefined ? {} : { [SELECTED_NODE]: node };
    return this.#create<Claim>(claims, {
      metadata: { name, namespace: 'default', annotations },
      spec: {
        storageClassName,
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  }

  select(claim: Claim, node: string): Promise<unknown> {
    const body = { metadata: { annotations: { [SELECTED_NODE]: node } } };
    const { name } = claim.metadata;
    return this.bed.kube.patch(claims, { namespace: 'default', name }, { type: 'merge', body });
  }

  async selectedNode({ metadata: { name } }: Claim): Promise<string | undefined> {
    const claim = await this.bed.kube.get<Claim>(claims, { namespace: 'default', name });
    return claim?.metadata.annotations?.[SELECTED_NODE];
  }

  bound(claim: Claim): Promise<void> {
    return until(() => this.bed.isBound(claim), `${claim.metadata.name} is bound`);
  }

  /** Zones of the requirement that the driver got for a claim: "requisite; preferred". */
  zonesOf({ metadata: { name } }: Claim): string {
    const asked = this.#asked.get(name)?.accessibilityRequirements;
    const zones = (terms: readonly { readonly segments: Record<string, string> }[] = []) =>
      terms.map(({ segments }) => segments['zone']).join('');
    return `${zones(asked?.requisite)}; ${zones(asked?.preferred)}`;
  }

  /** Messages of the warnings about a claim. */
  async warnings({ metadata: { name } }: Claim): Promise<readonly string[]> {
    const { items } = await this.bed.kube.list<Event & { involvedObject: { name?: string } }>(
      events,
      { namespace: 'default' },
    );
    return items
      .filter(({ type, involvedObject }) => type === 'Warning' && involvedObject.name === name)
      .map(({ message }) => message);
  }

  #create<T>(resource: Resource, object: object): Promise<T> {
    const { group, version, kind, namespaced } = resource;
    const apiVersion = group === '' ? version : `${group}/${version}`;
    const namespace = namespaced ? 'default' : undefined;
    return this.bed.kube.create<T>(resource, namespace, { apiVersion, kind, ...object });
  }
}

function allow(...values: readonly string[]): object {
  return { matchLabelExpressions: [{ key: 'zone', values }] };
}

describe('a zonal driver', () => {
  let zonal: ZonalBed;
  before(async () => {
    zonal = await ZonalBed.open();
  });
  after(() => zonal.bed.close());

  it('is told all zones for a claim that is bound at once; its PV is tied to one', async () => {
    const claim = await zonal.claim('testpvc', 'immediate');
    await zonal.bound(claim);
    assert.equal(zonal.zonesOf(claim), 'abcd; cdab');
    const volume = await zonal.bed.kube.get<Volume>(volumes, {
      name: `pvc-${claim.metadata.uid}`,
    });
    assert.deepEqual(volume?.spec.nodeAffinity, {
      required: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: 'zone', operator: 'In', values: ['c'] }] }],
      },
    });
  });

  it('is told the zones that the class allows', async () => {
    const claim = await zonal.claim('testset-1', 'in-b-and-d');
    await zonal.bound(claim);
    assert.match(zonal.zonesOf(claim), /^bd; (bd|db)$/);
  });

  it('is told to prefer the zone of the node that the scheduler selects', async () => {
    const claim = await zonal.claim('waiting', 'late');
    await zonal.select(claim, 'node-c');
    await zonal.bound(claim);
    assert.equal(zonal.zonesOf(claim), 'abcd; cdab');
  });

  it('is told another zone first for each member of a StatefulSet', async () => {
    const members = await Promise.all(
      [0, 1, 2, 3].flatMap((i) =>
        ['data', 'logs'].map((of) => zonal.claim(`${of}-set-${i}`, 'immediate')),
      ),
    );
    for (const claim of members) await zonal.bound(claim);
    const first = members.map((claim) => zonal.zonesOf(claim).at('abcd; '.length));
    const ofData = first.filter((_, i) => i % 2 === 0);
    assert.deepEqual(ofData.toSorted(), ZONES);
    assert.deepEqual(
      first.filter((_, i) => i % 2 === 1),
      ofData,
      'both claims of a member are in one zone',
    );
  });

  it('is not called for a node that has vanished: the scheduler selects another one', async () => {
    const claim = await zonal.claim('homeless', 'late', 'node-gone');
    await until(
      async () => (await zonal.selectedNode(claim)) === undefined,
      'the selected node is removed',
    );
    assert.equal(zonal.zonesOf(claim), '; ');
    const [warning] = await zonal.warnings(claim);
    assert.match(
      warning ?? '',
      /^failed to get selected CSINode node-gone: csinode.storage.k8s.io "node-gone" not found; /,
    );
    await zonal.select(claim, 'node-b');
    await zonal.bound(claim);
    assert.equal(zonal.zonesOf(claim), 'abcd; bcda');
  });

  it('gets a claim that fitted on no node soon after one fits', async () => {
    const { kube } = zonal.bed;
    const body = { metadata: { labels: { zone: null } } };
    await kube.patch(nodes, { name: 'node-d' }, { type: 'merge', body });
    const claim = await zonal.claim('parked', 'late', 'node-d');
    await until(async () => (await zonal.warnings(claim)).length > 0, 'a warning');
    assert.match(
      (await zonal.warnings(claim)).join(),
      /^error generating accessibility requirements: topology labels from selected node map\[\]/,
    );
    await until(() => zonal.bed.cluster.api.watchCount('nodes') === 2, 'ingest watches nodes too');
    const found = { metadata: { labels: { zone: 'd' } } };
    await kube.patch(nodes, { name: 'node-d' }, { type: 'merge', body: found });
    await until(() => zonal.zonesOf(claim) !== '; ', 'the driver is called');
    await zonal.bound(claim);
    assert.equal(zonal.zonesOf(claim), 'abcd; dabc');
  });

  it('is told the selected node’s zone alone with --strict-topology', async () => {
    await zonal.restartJobs('--strict-topology');
    const claim = await zonal.claim('strict', 'late', 'node-b');
    await zonal.bound(claim);
    assert.equal(zonal.zonesOf(claim), 'b; b');
  });

  it('is told nothing for an immediate claim with --immediate-topology=false', async () => {
    await zonal.restartJobs('--immediate-topology=false');
    const claim = await zonal.claim('anywhere', 'immediate');
    await zonal.bound(claim);
    assert.equal(zonal.zonesOf(claim), '; ');
  });
});

describe('a driver without topology', () => {
  it('costs no request for nodes, neither by ingest nor by jobs', async () => {
    const bed = await ProcessBed.open();
    try {
      const ingest = await bed.startIngest();
      const jobs = await bed.startJobs();
      await until(async () => (await isReady(ingest)) && (await isReady(jobs)), 'ready');
      const claim = await bed.newClaim();
      await until(() => bed.isBound(claim), 'the claim is bound');
      const asked = Object.keys(bed.cluster.api.requests.snapshot());
      assert.ok(asked.includes('watch storageclasses'));
      assert.deepEqual(
        asked.filter((each) => /nodes/.test(each)),
        [],
      );
    } finally {
      await bed.close();
    }
  });
});
