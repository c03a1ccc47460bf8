import { CLASSES } from '../../../../conformance/objects.ts';
import type { CodeName } from '#src/csi/status.ts';
import { status, volumeFor } from '../../../../harness/differential/scripted-driver.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import type { Dice } from './dice.ts';
import { type Part, soon } from './part.ts';

type Changes = Parameters<typeof volumeFor>[1];
const given = (label: string, changes: Changes | ((asked: bigint) => Changes)): Part => ({
  label: `answer ${label}`,
  answer: ({ method, create }) =>
    method === 'CreateVolume'
      ? volumeFor(
          create,
          typeof changes === 'function'
            ? changes(create.capacityRange?.requiredBytes ?? 0n)
            : changes,
        )
      : undefined,
});
const ANSWERS: readonly Part[] = [
  given('capacity 0', { capacityBytes: 0n }),
  given('one more', (asked) => ({ capacityBytes: asked < 2n ** 63n - 1n ? asked + 1n : asked })),
  given('rounded to GiB', (asked) => ({
    capacityBytes: asked < 2n ** 60n ? ((asked >> 30n) + 1n) << 30n : asked,
  })),
  given('one less', (asked) => ({ capacityBytes: asked - 1n })),
  given('negative', { capacityBytes: -1n }),
  given('the largest', { capacityBytes: 2n ** 63n - 1n }),
  given('odd context', {
    volumeContext: {
      é: '"\n',
      '': 'empty key',
      x: '',
      'storage.kubernetes.io/csiProvisionerIdentity': '',
    },
  }),
  given('long context', { volumeContext: { a: 'x'.repeat(20_000) } }),
  given('context named as reserved', {
    volumeContext: { 'csi.storage.k8s.io/pv/name': 'x', fstype: 'y' },
  }),
  given('another source', {
    contentSource: { type: { case: 'volume', value: { volumeId: 'x' } } },
  }),
  given('an empty source', { contentSource: { type: { case: undefined } } }),
  given('no source', { contentSource: undefined }),
  given('topology', { accessibleTopology: [{ segments: { 'a/b': 'c' } }, { segments: {} }] }),
  given('empty topology', { accessibleTopology: [{}] }),
];
const IDS = [
  'with space',
  'a/b#c%25',
  'é😀',
  'long'.padEnd(2000, 'x'),
  '"quoted"',
  'new\nline',
  ' ',
] as const;
const MESSAGES = [
  '',
  ' ',
  'plain',
  'trailing ',
  ' leading',
  'two\nlines\n',
  '100% %s %d %20',
  'é – 😀',
  '"quoted" \\n',
  'x'.repeat(1500),
  'x'.repeat(3900),
  '<b>&amp;',
  'rpc error: code = NotFound desc = nested',
  'the object has been changed',
  'tab\t\u0007',
  'uuid 123e4567-e89b-42d3-a456-426614174000',
  'nul\u0000 byte',
] as const;
const CODES: readonly CodeName[] = [
  'Internal',
  'Unknown',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'OutOfRange',
  'Unimplemented',
  'DataLoss',
  'Unauthenticated',
  'Unavailable',
  'Aborted',
  'Canceled',
  'DeadlineExceeded',
];
/** Codes after which both provisioners plan a new request. After the others sutler repeats the same
 * request until the driver's answer is final. */
const FINAL_CODES = CODES.slice(0, -4).filter((code) => code !== 'AlreadyExists');
const METHODS = ['CreateVolume', 'DeleteVolume'] as const;

function failing(dice: Dice): Part {
  const [method, message] = [dice.one(METHODS), dice.one(MESSAGES)];
  const times = dice.one([1, 1, 2, Infinity] as const);
  const code = dice.one(times === Infinity ? FINAL_CODES : CODES);
  return {
    label:
      `${method} fails ${times}× with ${code} ` +
      `${JSON.stringify(message.slice(0, 50))}${message.length}`,
    answer: (call) => {
      if (call.method === method && call.count <= times) throw status(code, message);
    },
  };
}

/** Attempts fail until an object is changed; the next request shows the change. */
function changing(dice: Dice): Part {
  const code = dice.one(FINAL_CODES);
  const change = dice.one(CHANGES);
  return {
    label: `CreateVolume fails with ${code} until ${change.label}`,
    ...(change.prepare === undefined ? {} : { prepare: change.prepare }),
    ...(change.parameters === undefined ? {} : { parameters: change.parameters }),
    ...(change.annotations === undefined ? {} : { annotations: change.annotations }),
    ...(change.spec === undefined ? {} : { spec: change.spec }),
    answer: (call, scene) => {
      if (call.method === 'CreateVolume' && !scene.happened.has('go'))
        throw status(code, 'not yet');
    },
    between: async (scene) => {
      // If nothing failed yet, the change may start the first attempt, at a time that depends on
      // the volume controller.
      if (!scene.hasEvent('ProvisioningFailed', 'not yet')) {
        scene.happened.add('go');
        await change.between?.(scene);
        return;
      }
      await change.between?.(scene);
      const count = scene.calls('CreateVolume').length;
      await soon(scene, () => scene.calls('CreateVolume').length >= count + 2);
    },
  };
}

const remake =
  (fields: object) =>
  async (scene: Scene): Promise<void> => {
    await scene.remove(`${CLASSES}/${scene.className}`);
    await scene.makeClass(scene.className, { ...fields });
  };
const PROVISIONER = (scene: Scene) => ({
  'csi.storage.k8s.io/provisioner-secret-name': "${pvc.annotations['which']}",
  'csi.storage.k8s.io/provisioner-secret-namespace': scene.namespace,
});
const CHANGES: readonly Part[] = [
  { label: 'nothing', between: () => Promise.resolve() },
  {
    label: 'the class has other parameters',
    between: remake({ parameters: { other: 'yes', fstype: 'xfs' } }),
  },
  {
    label: 'the class is Retain with mount options',
    between: remake({ reclaimPolicy: 'Retain', mountOptions: ['ro'] }),
  },
  {
    label: 'the class is wrong',
    between: remake({ parameters: { 'csi.storage.k8s.io/nonsense': 'x' } }),
  },
  { label: 'the class is gone', between: (scene) => scene.remove(`${CLASSES}/${scene.className}`) },
  {
    label: 'the claim is annotated',
    between: (scene) =>
      scene.patch(`${scene.claims}/data`, { metadata: { annotations: { which: 'others' } } }),
    annotations: { which: 'creds' },
    parameters: PROVISIONER,
    prepare: twoSecrets,
  },
  {
    label: 'the secret has another value',
    between: (scene) =>
      scene.patch(`/api/v1/namespaces/${scene.namespace}/secrets/creds`, {
        stringData: { user: 'zoe' },
      }),
    annotations: { which: 'creds' },
    parameters: PROVISIONER,
    prepare: twoSecrets,
  },
  {
    label: 'the claim is labelled',
    between: (scene) => scene.patch(`${scene.claims}/data`, { metadata: { labels: { a: 'b' } } }),
  },
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

async function twoSecrets(scene: Scene): Promise<void> {
  if (scene.happened.has('secrets')) return;
  scene.happened.add('secrets');
  for (const name of ['creds', 'others']) await scene.makeSecret(name, { user: name });
}

/** Random answers of the driver. */
export function answerParts(dice: Dice): readonly Part[] {
  const roll = dice.next();
  if (roll < 0.35) return [dice.one(ANSWERS)];
  if (roll < 0.45) {
    const id = dice.one(IDS);
    return [
      {
        label: `handle ${JSON.stringify(id.slice(0, 20))}`,
        answer: ({ method, create }) =>
          method === 'CreateVolume'
            ? volumeFor(create, { volumeId: `${id}-${create.name}` })
            : undefined,
      },
    ];
  }
  if (roll < 0.6) return [failing(dice)];
  if (roll < 0.75) return [changing(dice)];
  return [];
}
