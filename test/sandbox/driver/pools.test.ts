import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  Controller,
  Identity,
  Node,
  PluginCapability_Service_Type as PluginService,
  type TopologyRequirementSchema,
} from '#src/csi/generated/csi_pb.ts';
import { nodePool, NODE_KEY, ZONE_KEY, type Segments } from '../../../sandbox/driver/pools.ts';
import type { SampleDriverOptions } from '../../../sandbox/driver/server.ts';
import { openDriver, type DriverUnderTest } from '../../harness/sample-driver.ts';

const { createVolume, deleteVolume, getCapacity } = Controller.method;
const GIB = 1024n ** 3n;

const pools = [
  nodePool({ name: 'a1', zone: 'a', capacityBytes: 4n * GIB }),
  nodePool({ name: 'a2', zone: 'a', capacityBytes: 2n * GIB }),
  nodePool({ name: 'b1', zone: 'b', capacityBytes: 3n * GIB }),
];
const onNode = (name: string): Segments => ({ [NODE_KEY]: name });
const inZone = (zone: string): Segments => ({ [ZONE_KEY]: zone });

type Requirement = MessageInitShape<typeof TopologyRequirementSchema>;

/** A requirement with these terms. */
const terms = (
  requisite: readonly Segments[],
  preferred: readonly Segments[] = [],
): Requirement => ({
  requisite: requisite.map((segments) => ({ segments: { ...segments } })),
  preferred: preferred.map((segments) => ({ segments: { ...segments } })),
});

const request = (name: string, gib: bigint, accessibilityRequirements?: Requirement) => ({
  name,
  capacityRange: { requiredBytes: gib * GIB },
  volumeCapabilities: [
    { accessType: { case: 'mount' as const, value: {} }, accessMode: { mode: 1 as const } },
  ],
  ...(accessibilityRequirements === undefined ? {} : { accessibilityRequirements }),
});

async function using(
  work: (driver: DriverUnderTest) => Promise<void>,
  options: Partial<SampleDriverOptions> = { pools },
): Promise<void> {
  const driver = await openDriver(options);
  try {
    await work(driver);
  } finally {
    await driver.close();
  }
}

/** Creates a volume.
 * @returns the node that it is on */
async function nodeOf(
  driver: DriverUnderTest,
  volume: MessageInitShape<typeof createVolume.input>,
): Promise<string | undefined> {
  const answer = await driver.ask(createVolume, volume);
  assert.equal(answer.volume?.accessibleTopology.length, 1);
  return answer.volume?.accessibleTopology[0]?.segments[NODE_KEY];
}

async function roomOf(driver: DriverUnderTest, segments?: Segments): Promise<string> {
  const accessibleTopology = { segments: { ...segments } };
  const answer = await driver.ask(
    getCapacity,
    segments === undefined ? {} : { accessibleTopology },
  );
  return `${answer.availableCapacity / GIB} (${(answer.maximumVolumeSize ?? -GIB) / GIB})`;
}

describe('a sample driver with a pool on each node', () => {
  it('reports that volumes are accessible on some nodes only, and its own node', () =>
    using(
      async (d) => {
        const { capabilities } = await d.ask(Identity.method.getPluginCapabilities, {});
        assert.ok(
          capabilities.some(
            ({ type }) =>
              type.case === 'service' &&
              type.value.type === PluginService.VOLUME_ACCESSIBILITY_CONSTRAINTS,
          ),
        );
        const { accessibleTopology } = await d.ask(Node.method.nodeGetInfo, {});
        assert.deepEqual(accessibleTopology?.segments, { [NODE_KEY]: 'b1', [ZONE_KEY]: 'b' });
      },
      { pools, nodeId: 'b1' },
    ));

  it('takes the first preferred term with room, then the first requisite one', () =>
    using(async (d) => {
      const wanted = terms(
        [onNode('a1'), onNode('a2'), onNode('b1')],
        [onNode('a2'), onNode('b1')],
      );
      assert.equal(await nodeOf(d, request('v1', 2n, wanted)), 'a2');
      assert.equal(await nodeOf(d, request('v2', 2n, wanted)), 'b1');
      assert.equal(await nodeOf(d, request('v3', 2n, wanted)), 'a1');
    }));

  it('takes the pool with the most room of a zone, and of all without a requirement', () =>
    using(async (d) => {
      assert.equal(await nodeOf(d, request('v1', 1n, terms([inZone('a')]))), 'a1');
      assert.equal(await nodeOf(d, request('v2', 2n)), 'a1');
      assert.equal(await nodeOf(d, request('v3', 1n)), 'b1');
    }));

  it('refuses with ResourceExhausted if no requisite pool has room, and creates nothing', () =>
    using(async (d) => {
      assert.equal(
        await d.refusal(createVolume, request('v', 3n, terms([onNode('a2')]))),
        'ResourceExhausted: the emptiest pool that may be used has 2147483648 free bytes, ' +
          '3221225472 are requested',
      );
      for (const refused of [request('v', 5n), request('v', 1n, terms([onNode('x')]))])
        assert.match(await d.refusal(createVolume, refused), /^ResourceExhausted/);
      assert.deepEqual(d.driver.volumes(), []);
    }));

  it('answers a repeated call with the same volume, unless it is on a wrong node', () =>
    using(async (d) => {
      assert.equal(await nodeOf(d, request('v', 1n, terms([onNode('a2')]))), 'a2');
      assert.equal(await nodeOf(d, request('v', 1n, terms([inZone('a')]))), 'a2');
      assert.match(
        await d.refusal(createVolume, request('v', 1n, terms([onNode('b1')]))),
        /^AlreadyExists: .* pool 'a2'$/,
      );
    }));

  it('reports the room of all pools, of a zone, of a node and of none', () =>
    using(async (d) => {
      assert.equal(await nodeOf(d, request('v', 1n, terms([onNode('a1')]))), 'a1');
      assert.deepEqual(
        [
          await roomOf(d),
          await roomOf(d, inZone('a')),
          await roomOf(d, { ...onNode('a1'), ...inZone('a') }),
          await roomOf(d, { ...onNode('a1'), ...inZone('b') }),
        ],
        ['8 (3)', '5 (3)', '3 (3)', '0 (0)'],
      );
    }));

  it('gives the room back when a volume is deleted', () =>
    using(async (d) => {
      const { volume } = await d.ask(createVolume, request('v', 2n, terms([onNode('a2')])));
      assert.equal(await roomOf(d, onNode('a2')), '0 (0)');
      await d.ask(deleteVolume, { volumeId: volume?.volumeId ?? '' });
      assert.equal(await roomOf(d, onNode('a2')), '2 (2)');
    }));

  it('with one topology for all volumes serves every requirement', () =>
    using(
      async (d) => {
        const wanted = terms([onNode('anywhere')]);
        for (const _repeated of [1, 2]) {
          const { volume } = await d.ask(createVolume, request('v', 1n, wanted));
          assert.deepEqual(volume?.accessibleTopology[0]?.segments, { zone: 'z1' });
        }
        assert.equal(await roomOf(d, onNode('anywhere')), '2 (-1)');
      },
      { capacityBytes: 3n * GIB, topology: { zone: 'z1' } },
    ));

  it('without pools has one for all nodes and reports no maximum size', () =>
    using(
      async (d) => {
        await d.ask(createVolume, request('v', 1n, terms([onNode('anywhere')])));
        assert.equal(await roomOf(d, onNode('anywhere')), '2 (-1)');
      },
      { capacityBytes: 3n * GIB },
    ));
});
