import type { CodeName } from '#src/csi/status.ts';
import type { Fields } from '../../../../conformance/connection.ts';
import { CLASSES } from '../../../../conformance/objects.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import { makeSecrets } from './claims.ts';
import { type Dice, type Part, soon } from './part.ts';
import { status, volumeFor } from '../../../../harness/differential/scripted-driver.ts';

type Changes = Parameters<typeof volumeFor>[1];
const LARGEST = 2n ** 63n - 1n;
/** By label, how the answer of CreateVolume differs from the usual one. */
const ANSWERS: Readonly<Record<string, (asked: bigint, name: string) => Changes>> = {
  'capacity 0': () => ({ capacityBytes: 0n }),
  'one more': (asked) => ({ capacityBytes: asked < LARGEST ? asked + 1n : asked }),
  'one less': (asked) => ({ capacityBytes: asked - 1n }),
  negative: () => ({ capacityBytes: -1n }),
  'the largest': () => ({ capacityBytes: LARGEST }),
  'odd context': () => ({ volumeContext: { é: '"\n', '': 'empty key', x: '' } }),
  'long context': () => ({ volumeContext: { a: 'x'.repeat(20_000) } }),
  'reserved context': () => ({
    volumeContext: { 'csi.storage.k8s.io/pv/name': 'x', fstype: 'y', [IDENTITY]: '' },
  }),
  'another source': () => ({
    contentSource: { type: { case: 'volume', value: { volumeId: 'x' } } },
  }),
  'an empty source': () => ({ contentSource: { type: { case: undefined } } }),
  'no source': () => ({ contentSource: undefined }),
  topology: () => ({ accessibleTopology: [{ segments: { 'a/b': 'c' } }, { segments: {} }] }),
  'empty topology': () => ({ accessibleTopology: [{}] }),
  'odd handle': (_, name) => ({ volumeId: ` a/b#c%25 é😀"\n-${name}` }),
  'long handle': (_, name) => ({ volumeId: `${'x'.repeat(2000)}-${name}` }),
};
const IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';
const MESSAGES = [
  ...(
    '| |trailing | leading|two\nlines\n|100% %s %d %20|é – 😀 "quoted" \\n|<b>&amp;|tab\t\u0007|' +
    'rpc error: code = NotFound desc = nested|the object has been changed|nul\u0000 byte|' +
    'uuid 123e4567-e89b-42d3-a456-426614174000'
  ).split('|'),
  ...[1500, 3900].map((length) => 'x'.repeat(length)),
];
/** Codes after which both provisioners plan a new request. After the others sutler repeats the same
 * request until the driver's answer is final. */
const FINAL = (
  'Internal Unknown NotFound PermissionDenied ResourceExhausted FailedPrecondition OutOfRange ' +
  'Unimplemented DataLoss Unauthenticated'
).split(' ') as readonly CodeName[];
const CODES: readonly CodeName[] = [
  ...FINAL,
  ...(['AlreadyExists', 'Unavailable', 'Aborted', 'Canceled', 'DeadlineExceeded'] as const),
];

function failing(dice: Dice): Part {
  const [method, message] = [dice.one(['CreateVolume', 'DeleteVolume']), dice.one(MESSAGES)];
  const times = dice.one([1, 1, 2, Infinity]);
  const code = dice.one(times === Infinity ? FINAL : CODES);
  return {
    label: `${method} fails ${times}× with ${code} ${JSON.stringify(message.slice(0, 50))}`,
    answer: (call) => {
      if (call.method === method && call.count <= times) throw status(code, message);
    },
  };
}

/** Attempts fail until an object is changed; the next request shows the change. */
function changing(dice: Dice): Part {
  const code = dice.one(FINAL);
  const change = dice.one(CHANGES);
  return {
    ...change,
    label: `CreateVolume fails with ${code} until ${change.label}`,
    answer: (call, scene) => {
      if (call.method === 'CreateVolume' && !scene.happened.has('go'))
        throw status(code, 'not yet');
    },
    between: async (scene) => {
      // If nothing failed yet, the change might start the first attempt, at a time that depends on
      // the volume controller.
      if (!scene.hasEvent('ProvisioningFailed', 'not yet')) return;
      await change.between?.(scene);
      const count = scene.calls('CreateVolume').length;
      await soon(scene, () => scene.calls('CreateVolume').length >= count + 2);
    },
  };
}

const remade = (label: string, fields: Fields): Part => ({
  label: `the class is ${label}`,
  between: async (scene) => {
    await scene.remove(`${CLASSES}/${scene.className}`);
    await scene.makeClass(scene.className, fields);
  },
});
/** A class whose secret an annotation of the claim names. */
const bySecret = (label: string, between: (scene: Scene) => Promise<unknown>): Part => ({
  label,
  between,
  annotations: { which: 'creds' },
  parameters: (scene) => ({
    'csi.storage.k8s.io/provisioner-secret-name': "${pvc.annotations['which']}",
    'csi.storage.k8s.io/provisioner-secret-namespace': scene.namespace,
  }),
  prepare: makeSecrets,
});
const CHANGES: readonly Part[] = [
  { label: 'nothing', between: () => Promise.resolve() },
  remade('of other parameters', { parameters: { other: 'yes', fstype: 'xfs' } }),
  remade('Retain with mount options', { reclaimPolicy: 'Retain', mountOptions: ['ro'] }),
  remade('wrong', { parameters: { 'csi.storage.k8s.io/nonsense': 'x' } }),
  { label: 'the class is gone', between: (scene) => scene.remove(`${CLASSES}/${scene.className}`) },
  bySecret('the claim is annotated', (scene) =>
    scene.patch(`${scene.claims}/data`, { metadata: { annotations: { which: 'others' } } }),
  ),
  bySecret('the secret has another value', (scene) =>
    scene.patch(`/api/v1/namespaces/${scene.namespace}/secrets/creds`, {
      stringData: { user: 'berta' },
    }),
  ),
  { label: 'the claim is gone', between: (scene) => scene.remove(`${scene.claims}/data`) },
  {
    label: 'the claim is recreated',
    between: async (scene) => {
      await scene.remove(`${scene.claims}/data`);
      await soon(scene, () => scene.claim() === undefined);
      // A finalizer may keep the old object.
      if (scene.claim() === undefined) await scene.makeClaim('data');
    },
  },
];

/** Random answers of the driver. */
export function answerParts(dice: Dice): readonly Part[] {
  const roll = dice.next();
  if (roll >= 0.75) return [];
  if (roll >= 0.6) return [changing(dice)];
  if (roll >= 0.45) return [failing(dice)];
  const label = dice.one(Object.keys(ANSWERS));
  return [
    {
      label: `answer ${label}`,
      answer: ({ method, create }) =>
        method === 'CreateVolume'
          ? volumeFor(
              create,
              ANSWERS[label]?.(create.capacityRange?.requiredBytes ?? 0n, create.name),
            )
          : undefined,
    },
  ];
}
