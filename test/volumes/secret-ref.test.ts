import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  type SecretContext,
  type SecretPurpose,
  secretRef,
  type SecretRef,
} from '#src/volumes/secret-ref.ts';
import { hasMessage } from './plans.ts';

const N = 'csi.storage.k8s.io/';
const context: SecretContext = {
  volumeName: 'pvname',
  claim: { name: 'pvcname', namespace: 'pvcnamespace', annotations: { akey: 'avalue' } },
};

const OLD_NAME = { csiNodePublishSecretName: 'name' };
const OLD_NAMESPACE = { csiNodePublishSecretNamespace: 'ns' };
const NEW_NAME = { [`${N}node-publish-secret-name`]: 'name' };
const NEW_NAMESPACE = { [`${N}node-publish-secret-namespace`]: 'ns' };
const OLD = { ...OLD_NAME, ...OLD_NAMESPACE };
const NEW = { ...NEW_NAME, ...NEW_NAMESPACE };

const publish = (parameters: Record<string, string>) =>
  secretRef('NodePublish', parameters, context);
const publishOf = (name: string, namespace: string) =>
  publish({
    [`${N}node-publish-secret-name`]: name,
    [`${N}node-publish-secret-namespace`]: namespace,
  });
const provisionerKeys = (name: string, namespace: string) => ({
  [`${N}provisioner-secret-name`]: name,
  [`${N}provisioner-secret-namespace`]: namespace,
});
const provisioner = (name: string, namespace: string, claim = context.claim) =>
  secretRef('Provisioner', provisionerKeys(name, namespace), {
    volumeName: 'pvname',
    ...(claim === undefined ? {} : { claim }),
  });

const BOTH =
  'failed to get name and namespace template from params: NodePublish secrets specified in ' +
  'parameters with both "csi" and "csi.storage.k8s.io/" keys';
const HALF =
  'failed to get name and namespace template from params: either name and namespace for ' +
  'NodePublish secrets specified, Both must be specified';
const EMPTY =
  'failed to get name and namespace template from params: NodePublish secrets specified in ' +
  'parameters but value of either namespace or name is empty';

describe('the secret that a class names', () => {
  it('is none without parameters (A-17)', () => assert.equal(publish({}), undefined));

  const refusals: readonly (readonly [string, Record<string, string>, string])[] = [
    [
      'both values empty (A-18)',
      { csiNodePublishSecretName: '', csiNodePublishSecretNamespace: '' },
      EMPTY,
    ],
    ['only the old name (A-19)', OLD_NAME, HALF],
    ['only the new name (A-20)', NEW_NAME, HALF],
    ['only the old namespace (A-21)', OLD_NAMESPACE, HALF],
    ['only the new namespace (A-22)', NEW_NAMESPACE, HALF],
    ['the old pair and the new pair (A-24)', { ...OLD, ...NEW }, BOTH],
    ['the old pair and the new name (A-25)', { ...OLD, ...NEW_NAME }, BOTH],
    ['the old pair and the new namespace (A-26)', { ...OLD, ...NEW_NAMESPACE }, BOTH],
    [
      'a name with an empty namespace',
      { ...NEW_NAME, [`${N}node-publish-secret-namespace`]: '' },
      EMPTY,
    ],
  ];
  for (const [what, parameters, message] of refusals) {
    it(`is not taken from ${what}`, () =>
      assert.throws(() => publish(parameters), hasMessage(message)));
  }

  const references: readonly (readonly [string, Record<string, string>])[] = [
    ['the old pair (A-23)', OLD],
    ['an old name and a new namespace (A-27)', { ...OLD_NAME, ...NEW_NAMESPACE }],
    ['a new name and an old namespace', { ...NEW_NAME, ...OLD_NAMESPACE }],
    ['the new pair (A-28)', NEW],
  ];
  for (const [what, parameters] of references) {
    it(`is taken from ${what}`, () =>
      assert.deepEqual(publish(parameters), { name: 'name', namespace: 'ns' }));
  }

  it('needs no claim if it is static (A-29)', () => {
    assert.deepEqual(
      secretRef('Provisioner', provisionerKeys('name', 'ns'), { volumeName: 'pv' }),
      { name: 'name', namespace: 'ns' },
    );
  });

  it('is the static one, whatever the claim is called (A-30)', () => {
    assert.deepEqual(provisioner('param-name', 'param-ns'), {
      name: 'param-name',
      namespace: 'param-ns',
    });
  });

  it('needs a valid object name (A-31)', () => {
    assert.throws(
      () => publishOf('bad name', 'ns'),
      hasMessage('"bad name" is not a valid secret name'),
    );
  });

  it('needs a valid namespace (A-32)', () => {
    assert.throws(
      () => publishOf('name', 'bad ns'),
      hasMessage('"bad ns" is not a valid namespace name'),
    );
  });

  it('is refused in one line without invisible characters', () => {
    assert.throws(
      () => publishOf('quo"te\u00a0', 'ns'),
      hasMessage(String.raw`"quo\"te\u00a0" is not a valid secret name`),
    );
    assert.throws(
      () => publishOf('name', 'line\n${pvc.name}'),
      hasMessage(
        String.raw`error resolving value "line\n${'$'}{pvc.name}": invalid tokens: ["pvc.name"]`,
      ),
    );
  });

  it('needs a namespace besides a name with all variables (A-33)', () => {
    const name = "static-${pv.name}-${pvc.namespace}-${pvc.name}-${pvc.annotations['akey']}";
    assert.throws(
      () => secretRef('Provisioner', { [`${N}provisioner-secret-name`]: name }, context),
      hasMessage(/Both must be specified$/),
    );
  });

  it('falls back to the default pair', () => {
    assert.deepEqual(publish({ [`${N}secret-name`]: 'name', [`${N}secret-namespace`]: 'ns' }), {
      name: 'name',
      namespace: 'ns',
    });
  });

  it('is not the default one if the purpose has its own', () => {
    assert.deepEqual(
      publish({ ...NEW, [`${N}secret-name`]: 'other', [`${N}secret-namespace`]: 'other' }),
      {
        name: 'name',
        namespace: 'ns',
      },
    );
  });

  it('is not taken from half a default pair', () => {
    const message =
      'failed to get default name and namespace template from params: either name and ' +
      'namespace for Default secrets specified, Both must be specified';
    assert.throws(() => publish({ [`${N}secret-name`]: 'name' }), hasMessage(message));
  });

  const purposes: readonly (readonly [SecretPurpose, string])[] = [
    ['Provisioner', 'provisioner-'],
    ['ControllerPublish', 'controller-publish-'],
    ['NodeStage', 'node-stage-'],
    ['NodePublish', 'node-publish-'],
    ['ControllerExpand', 'controller-expand-'],
    ['NodeExpand', 'node-expand-'],
    ['ControllerModify', 'controller-modify-'],
  ];
  for (const [purpose, key] of purposes) {
    it(`is read for ${purpose} from keys that begin with ${N}${key}`, () => {
      const parameters = {
        [`${N}${key}secret-name`]: 'name',
        [`${N}${key}secret-namespace`]: 'ns',
      };
      assert.deepEqual(secretRef(purpose, parameters, context), { name: 'name', namespace: 'ns' });
    });
  }

  for (const [purpose, word] of [
    ['Provisioner', 'Provisioner'],
    ['ControllerPublish', 'ControllerPublish'],
    ['NodeStage', 'NodeStage'],
  ] as const) {
    it(`is read for ${purpose} from the deprecated keys`, () => {
      const parameters = { [`csi${word}SecretName`]: 'name', [`csi${word}SecretNamespace`]: 'ns' };
      assert.deepEqual(secretRef(purpose, parameters, context), { name: 'name', namespace: 'ns' });
    });
  }
});

describe('a template', () => {
  const resolved: readonly (readonly [string, SecretRef | undefined, SecretRef])[] = [
    [
      'of the provisioner’s secret may contain an annotation (A-34)',
      provisioner("static-${pvc.name}-${pvc.annotations['akey']}", 'static-${pvc.namespace}', {
        name: 'name',
        namespace: 'pvcnamespace',
        annotations: { akey: 'avalue' },
      }),
      { name: 'static-name-avalue', namespace: 'static-pvcnamespace' },
    ],
    [
      'may contain volume, claim, namespace and annotation (A-35)',
      publishOf(
        "static-${pv.name}-${pvc.namespace}-${pvc.name}-${pvc.annotations['akey']}",
        'static-${pv.name}-${pvc.namespace}',
      ),
      {
        name: 'static-pvname-pvcnamespace-pvcname-avalue',
        namespace: 'static-pvname-pvcnamespace',
      },
    ],
    [
      'of the provisioner’s secret may contain volume, claim and namespace (A-36)',
      provisioner(
        'static-provisioner-${pv.name}-${pvc.namespace}-${pvc.name}',
        'static-provisioner-${pv.name}-${pvc.namespace}',
      ),
      {
        name: 'static-provisioner-pvname-pvcnamespace-pvcname',
        namespace: 'static-provisioner-pvname-pvcnamespace',
      },
    ],
    [
      'may be used with a static namespace (A-37)',
      provisioner('${pvc.name}', 'ns'),
      { name: 'pvcname', namespace: 'ns' },
    ],
    [
      'may be the whole name and the whole namespace (A-38)',
      provisioner('${pvc.name}', '${pvc.namespace}'),
      { name: 'pvcname', namespace: 'pvcnamespace' },
    ],
    [
      'of the namespace may be used with a static name (A-39)',
      provisioner('static-name-1', '${pvc.namespace}'),
      { name: 'static-name-1', namespace: 'pvcnamespace' },
    ],
  ];
  for (const [title, actual, expected] of resolved)
    it(title, () => assert.deepEqual(actual, expected));

  it('may not have unknown variables in the namespace (A-40)', () => {
    assert.throws(
      () => publishOf('name', '${bar}'),
      hasMessage('error resolving value "${bar}": invalid tokens: ["bar"]'),
    );
  });

  it('may not have unknown variables in the name (A-41)', () => {
    assert.throws(
      () => publishOf('${foo}', 'ns'),
      hasMessage('error resolving value "${foo}": invalid tokens: ["foo"]'),
    );
  });

  it('of a namespace may not contain the claim’s name', () => {
    assert.throws(
      () => provisioner('name', '${pvc.name}'),
      hasMessage('error resolving value "${pvc.name}": invalid tokens: ["pvc.name"]'),
    );
  });

  it('may not name the claim if it is unknown', () => {
    const nameless = { volumeName: 'pvname' };
    assert.throws(
      () => secretRef('Provisioner', provisionerKeys('${pvc.name}', 'ns'), nameless),
      hasMessage(/invalid tokens: \["pvc\.name"\]/),
    );
    assert.throws(
      () => secretRef('Provisioner', provisionerKeys('name', '${pvc.namespace}'), nameless),
      hasMessage(/invalid tokens: \["pvc\.namespace"\]/),
    );
  });

  it('is refused with all unknown variables, sorted and each once', () => {
    assert.throws(
      () => provisioner('${b}-$a-${b}', 'ns'),
      hasMessage('error resolving value "${b}-$a-${b}": invalid tokens: ["a" "b"]'),
    );
  });

  it('is checked in the namespace before the name', () => {
    assert.throws(() => provisioner('bad name', 'bad ns'), hasMessage(/"bad ns"/));
  });

  it('is shown with its result if that is no valid name', () => {
    const claim = { name: 'UPPER', namespace: 'a.b', annotations: {} };
    assert.throws(
      () => provisioner('${pvc.name}', 'ns', claim),
      hasMessage('"${pvc.name}" resolved to "UPPER" which is not a valid secret name'),
    );
    assert.throws(
      () => provisioner('name', '${pvc.namespace}', claim),
      hasMessage('"${pvc.namespace}" resolved to "a.b" which is not a valid namespace name'),
    );
  });

  it('may have dots in a name, up to 253 characters, and none in a namespace, up to 63', () => {
    const long = 'a'.repeat(253);
    assert.deepEqual(provisioner('a.b-c.d', 'ns'), { name: 'a.b-c.d', namespace: 'ns' });
    assert.equal(provisioner(long, 'ns')?.name, long);
    assert.equal(provisioner('name', 'a'.repeat(63))?.namespace.length, 63);
    assert.throws(() => provisioner(`${long}a`, 'ns'), hasMessage(/is not a valid secret name$/));
    assert.throws(
      () => provisioner('name', 'a'.repeat(64)),
      hasMessage(/is not a valid namespace name$/),
    );
    assert.throws(() => provisioner('name', 'a.b'), hasMessage(/is not a valid namespace name$/));
  });
});

describe('a template of more than 4096 characters', () => {
  const long = 'x'.repeat(4097);

  it('is refused with the name of its parameter', () => {
    const refusal = (key: string) =>
      hasMessage(
        `failed to get name and namespace template from params: the parameter ${N}${key} ` +
          'has 4097 characters; a template may have 4096 at most',
      );
    assert.throws(() => provisioner(long, 'ns'), refusal('provisioner-secret-name'));
    assert.throws(() => provisioner('name', long), refusal('provisioner-secret-namespace'));
  });

  it('is refused, and one of 4096 is not', () => {
    const allowed = `${'${}'.repeat(1362)}\${pv.name}`;
    assert.equal(allowed.length, 4096);
    assert.equal(provisioner(allowed, 'ns')?.name, 'pvname');
    assert.throws(() => provisioner(`${allowed}b`, 'ns'));
  });
});

describe('a template, expanded as Go’s os.Expand does,', () => {
  const claim = { name: 'pvcname', namespace: 'pvcnamespace', annotations: { '': 'none' } };
  const same: readonly (readonly [string, string, string])[] = [
    ['drops ${}', 'a${}b', 'ab'],
    ['drops only the two characters of an unclosed ${ (R-19)', 'a${pv.name', 'apv.name'],
    ['reads on after an unclosed ${', 'a${-b', 'a-b'],
    ['reads the name up to the first closing brace', 'a-${pv.name}.b', 'a-pvname.b'],
  ];
  for (const [title, template, name] of same)
    it(title, () => assert.equal(provisioner(template, 'ns', claim)?.name, name));

  const unknown: readonly (readonly [string, string, string])[] = [
    ['reads $name as a variable (R-19)', 'a$name-b', '["name"]'],
    ['ends $name at the first character but letter, digit and underscore', '$a_1.b', '["a_1"]'],
    ['reads $$ as the variable $ (R-19)', 'a$$b', '["$"]'],
    ['reads one digit as a variable', 'a$12', '["1"]'],
    ['reads one sign as a variable', 'a$*$#$@$!$?$-', '["!" "#" "*" "-" "?" "@"]'],
    ['finds variables after an unclosed ${', 'a${$b', '["b"]'],
  ];
  for (const [title, template, tokens] of unknown) {
    it(title, () => {
      assert.throws(
        () => provisioner(template, 'ns', claim),
        hasMessage(`error resolving value ${JSON.stringify(template)}: invalid tokens: ${tokens}`),
      );
    });
  }

  it('keeps a $ before any other character and at the end', () => {
    assert.throws(() => provisioner('a$', 'ns'), hasMessage('"a$" is not a valid secret name'));
    assert.throws(() => provisioner('a$.b', 'ns'), hasMessage('"a$.b" is not a valid secret name'));
  });
});
