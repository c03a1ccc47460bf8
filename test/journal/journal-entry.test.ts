import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  claimForPlanning,
  decodeEntry,
  encodeEntry,
  encodeObject,
  entryBytes,
  journalName,
  journalNumber,
  readObject,
} from '#src/journal/journal-entry.ts';
import type { Claim, Lease } from '#src/kube/objects.ts';
import { aClaim, aClass, DRIVER } from '../volumes/builders.ts';

const OWNER = { driver: DRIVER, lease: 'test-driver' };
const ENTRY = 'journal.sutler.dev/testid';

function leaseWith(annotations: Readonly<Record<string, string>>): Lease {
  return {
    metadata: { name: 'test-driver-journal-0', uid: 'u', resourceVersion: '1', annotations },
  };
}

function written(...entries: Parameters<typeof encodeEntry>[]): Record<string, string> {
  return {
    ...encodeObject(
      OWNER,
      entries.map((each) => encodeEntry(...each)),
    ),
  };
}

function entriesIn(annotations: Readonly<Record<string, string>>) {
  const read = readObject(OWNER, leaseWith(annotations));
  assert.ok(read.kind === 'journal');
  return { entries: read.entries.map(decodeEntry), unread: read.unread };
}

describe('the name of a journal object', () => {
  it('is that of the driver’s Lease and a number, and has the node where each has a process', () => {
    assert.equal(journalName(OWNER, 12), 'test-driver-journal-12');
    assert.equal(journalName({ ...OWNER, node: 'n1' }, 0), 'test-driver-journal-n1-0');
  });

  it('has 253 characters at most, and is another one for each driver, node and number', () => {
    const long = 'x'.repeat(250);
    const names = [
      journalName({ ...OWNER, lease: `${long}a` }, 0),
      journalName({ ...OWNER, lease: `${long}b` }, 0),
      journalName({ ...OWNER, lease: `${long}b` }, 10),
      journalName({ ...OWNER, lease: `${long}b`, node: 'n' }, 0),
      journalName({ ...OWNER, node: long }, 0),
    ];
    assert.ok(names.every(({ length }) => length <= 253));
    assert.equal(new Set(names).size, names.length);
  });

  it('is recognised, also where it was shortened', () => {
    for (const owner of [OWNER, { ...OWNER, node: 'n1' }, { ...OWNER, lease: 'x'.repeat(250) }])
      assert.equal(journalNumber(owner, journalName(owner, 123)), 123);
  });

  it('is none of another driver or node, or of the driver’s own Lease', () => {
    for (const rest of ['', '-journal', '-journal-', '-journal-01', '-journal-n1-0'])
      assert.equal(journalNumber(OWNER, `test-driver${rest}`), undefined, rest);
    assert.equal(journalNumber(OWNER, 'other-journal-0'), undefined);
    assert.equal(journalNumber({ ...OWNER, node: '1' }, 'test-driver-journal-n-1-0'), undefined);
  });
});

describe('an entry', () => {
  it('is read as it was written, with its class', () => {
    const { entries, unread } = entriesIn(written([aClaim(), aClass({ parameters: { a: 'b' } })]));
    assert.equal(entries.length, 1);
    assert.deepEqual(entries[0]?.uid, 'testid');
    assert.deepEqual(entries[0]?.claim.spec, aClaim().spec);
    assert.deepEqual(entries[0]?.claim.metadata.annotations, aClaim().metadata.annotations);
    assert.deepEqual(entries[0]?.cls?.parameters, { a: 'b' });
    assert.deepEqual(unread, []);
  });

  it('shares its class with others that name the same', () => {
    const second = aClaim({ metadata: { uid: 'second', name: 'second' } });
    const third = aClaim({ metadata: { uid: 'third', name: 'third' } });
    const annotations = written(
      [aClaim(), aClass()],
      [second, aClass()],
      [third, aClass({ parameters: { a: 'b' } })],
    );
    const classes = Object.keys(annotations).filter((key) => key.startsWith('class.journal.'));
    assert.equal(classes.length, 2);
    assert.deepEqual(
      entriesIn(annotations).entries.map(({ cls }) => cls?.parameters),
      [{}, {}, { a: 'b' }],
    );
  });

  it('has the annotations that the class names in its templates of secrets, and no others', () => {
    const cls = aClass({
      parameters: {
        'csi.storage.k8s.io/provisioner-secret-name': "${pvc.annotations['team.example/secret']}",
      },
    });
    const annotations = {
      ...aClaim().metadata.annotations,
      'team.example/secret': 'gold',
      'kubectl.kubernetes.io/last-applied-configuration': '{}',
    };
    const kept = claimForPlanning(aClaim({ metadata: { annotations } }), cls).metadata.annotations;
    assert.deepEqual(kept, { ...aClaim().metadata.annotations, 'team.example/secret': 'gold' });
  });

  it('leaves out annotations that are too long for the name of a secret', () => {
    const cls = aClass({ parameters: { name: "${pvc.annotations['long']}" } });
    const annotations = { long: 'x'.repeat(250_000) };
    const entry = encodeEntry(aClaim({ metadata: { annotations } }), cls);
    assert.ok(entryBytes(entry) < 1_000, String(entryBytes(entry)));
  });

  it('has none of the claim’s labels, finalizers and status', () => {
    const labelled = aClaim({ metadata: { labels: { a: 'b' }, finalizers: ['x'] } });
    const claim: Claim = { ...labelled, status: { phase: 'Pending' } };
    const [entry] = entriesIn(written([claim, undefined])).entries;
    const kept = entry?.claim;
    assert.equal(entry?.cls, undefined);
    assert.deepEqual(Object.keys(kept ?? {}), ['metadata', 'spec']);
    const fields = ['annotations', 'name', 'namespace', 'resourceVersion', 'uid'];
    assert.deepEqual(Object.keys(kept?.metadata ?? {}).toSorted(), fields);
  });
});

describe('a journal object that was edited', () => {
  for (const [what, text] of [
    ['is no JSON', '{'],
    ['is no object', '[]'],
    ['has no claim', '{}'],
    ['is of another claim', JSON.stringify({ claim: aClaim({ metadata: { uid: 'other' } }) })],
    ['has a claim without a name', '{"claim":{"metadata":{"uid":"testid"},"spec":{}}}'],
  ] as const)
    it(`has an unread entry where one ${what}, and the others are read`, () => {
      const second = aClaim({ metadata: { uid: 'second' } });
      const { entries, unread } = entriesIn({ ...written([second, undefined]), [ENTRY]: text });
      assert.deepEqual(
        entries.map(({ uid }) => uid),
        ['second'],
      );
      assert.deepEqual(unread, [{ key: ENTRY, text, reason: 'it is no claim of that UID' }]);
    });

  it('has an entry without a class where the class is missing', () => {
    const annotations = written([aClaim(), aClass()]);
    const kept = Object.entries(annotations).filter(([key]) => !key.startsWith('class.'));
    const { entries, unread } = entriesIn(Object.fromEntries(kept));
    assert.deepEqual([entries[0]?.uid, entries[0]?.cls, unread], ['testid', undefined, []]);
  });

  it('is another’s if it names another driver, node or version', () => {
    for (const [key, value] of [
      ['sutler.dev/driver', 'other'],
      ['sutler.dev/node', 'n1'],
      ['sutler.dev/journal-version', '2'],
    ] as const) {
      const annotations = { ...written([aClaim(), undefined]), [key]: value };
      const read = readObject(OWNER, leaseWith(annotations));
      assert.ok(read.kind === 'other' && read.reason.includes(value), JSON.stringify(read));
    }
  });

  it('without annotations is empty', () => {
    const lease = { metadata: { name: 'n', uid: 'u', resourceVersion: '1' } };
    assert.deepEqual(readObject(OWNER, lease), { kind: 'journal', entries: [], unread: [] });
  });
});
