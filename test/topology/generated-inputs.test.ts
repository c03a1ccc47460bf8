import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import * as fc from 'fast-check';
import { CreateVolumeRequestSchema } from '#src/csi/generated/csi_pb.ts';
import type { TopologySelectorTerm } from '#src/kube/objects.ts';
import { fingerprintCsiNodes, fingerprintNodes } from '#src/topology/fingerprint.ts';
import { RefusedError } from '#src/rules/rule.ts';
import { topologyRequirement, type TopologyRequirement } from '#src/topology/requirement.ts';
import { aClass } from '../volumes/builders.ts';
import { aCluster } from './fake-cluster.ts';

const RUNS = 10_000;
/** A fixed seed, so that every run has the same inputs; a failure prints the smallest input. */
const SEED = 20_261_122;

const key = fc.oneof(
  { weight: 9, arbitrary: fc.constantFrom('zone', 'rack', 'example.com/host') },
  fc.constantFrom('constructor', '__proto__', 'toString', '', 'a b', 'x'.repeat(300)),
);
const value = fc.oneof(
  { weight: 9, arbitrary: fc.constantFrom('a', 'b', 'c') },
  fc.constantFrom('', '__proto__', 'z'.repeat(300), 'größe', '😀'),
);
/** Own properties, as JSON.parse makes them, `__proto__` too. */
const labels = fc
  .array(fc.tuple(key, value), { maxLength: 4 })
  .map((pairs) => Object.fromEntries(pairs));
const node = fc.record({
  labels: fc.option(labels, { nil: undefined, freq: 9 }),
  keys: fc.oneof(
    { weight: 6, arbitrary: fc.array(key, { maxLength: 3 }) },
    fc.constantFrom(undefined, 'not registered' as const),
  ),
});
const allowed: fc.Arbitrary<readonly TopologySelectorTerm[] | undefined> = fc.option(
  fc.array(
    fc.record(
      {
        matchLabelExpressions: fc.array(
          fc.record({ key, values: fc.array(value, { maxLength: 3 }) }),
          { maxLength: 3 },
        ),
      },
      { requiredKeys: [] },
    ),
    { maxLength: 3 },
  ),
  { nil: undefined },
);

/** Where a claim of these inputs may be; the message of a refusal. */
function outcomeOf(act: () => TopologyRequirement | undefined): TopologyRequirement | string {
  try {
    return act() ?? 'anywhere';
  } catch (error) {
    if (error instanceof RefusedError) return error.message;
    throw error;
  }
}

const REFUSALS =
  /^(anywhere$|failed to get selected CSINode |no topology key found for node |topology labels from selected node map\[|selected node '|topology \[|no available topology found$|topologyKeys \[|error parsing topology keys selector: )/;

describe(`the topology requirement, on ${RUNS} generated clusters`, () => {
  it('is made of the nodes or the class, or is refused with a reason', () => {
    const seen = { required: 0, refused: 0 };
    fc.assert(
      fc.property(
        fc.array(node, { maxLength: 5 }),
        allowed,
        fc.constantFrom('', 'node-0', 'node-1', 'gone'),
        fc.boolean(),
        fc.boolean(),
        (...[nodes, allowedTopologies, selectedNode, strictTopology, immediateTopology]) => {
          const topology = aCluster(nodes);
          const found = outcomeOf(() =>
            topologyRequirement({
              claimName: 'data-set-1',
              cls: aClass(allowedTopologies === undefined ? {} : { allowedTopologies }),
              selectedNode,
              topology,
              strictTopology,
              immediateTopology,
            }),
          );
          fingerprintNodes(topology.nodes(), topology.csiNodes());
          fingerprintCsiNodes(topology.csiNodes());
          seen[typeof found === 'string' ? 'refused' : 'required'] += 1;
          if (typeof found === 'string') assert.match(found, REFUSALS);
          else checkRequirement(found, selectedNode !== '' && strictTopology);
        },
      ),
      { numRuns: RUNS, seed: SEED },
    );
    for (const [kind, count] of Object.entries(seen))
      assert.ok(count > 1000, `only ${count} of ${kind}: the inputs reach too little`);
  });
});

function checkRequirement(found: TopologyRequirement, isStrict: boolean): void {
  const texts = (terms: TopologyRequirement['requisite']) =>
    terms.map(({ segments }) => JSON.stringify(segments));
  assert.deepEqual(texts(found.preferred).toSorted(), texts(found.requisite).toSorted());
  assert.ok(found.requisite.length > 0);
  if (isStrict) assert.equal(found.requisite.length, 1);
  const request = create(CreateVolumeRequestSchema, { accessibilityRequirements: found });
  const bytes = toBinary(CreateVolumeRequestSchema, request);
  const { accessibilityRequirements: read } = fromBinary(CreateVolumeRequestSchema, bytes);
  assert.equal(read?.requisite.length, found.requisite.length);
}
