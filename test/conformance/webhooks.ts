import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  ALLOWED,
  startWebhookServer,
  type Answer,
  type ReviewRequest,
  type WebhookServer,
} from '../harness/webhook-server.ts';
import {
  at,
  fieldsAt,
  refused,
  textAt,
  unique,
  type ApiServerUnderTest,
  type Connection,
  type Fields,
} from './connection.ts';
import { describeServer } from './describe-server.ts';
import { VOLUMES, claim, paths, volume } from './objects.ts';

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations';
const ALL = { apiGroups: [''], apiVersions: ['v1'] };
const RULES = [
  { ...ALL, operations: ['CREATE', 'UPDATE'], resources: ['persistentvolumeclaims'] },
  { ...ALL, operations: ['UPDATE'], resources: ['persistentvolumes', 'persistentvolumes/status'] },
];

/** Tests how an API server asks validating webhooks. It has to reach them on loopback. */
export function describeWebhooks(name: string, open: () => Promise<ApiServerUnderTest>): void {
  describeServer(`webhooks: ${name}`, open, (api) => {
    describeReviews(api);
    describeRepeatedReviews(api);
    describeVerdicts(api);
    describeConfigurations(api);
  });
}

function describeReviews(api: () => Connection): void {
  describe('a review', () => {
    it('of a creation comes before the write, with the uid that the object will have', async (t) => {
      const scene = await openScene(t, api());
      const { review, stored } = await scene.createClaim({ name: unique('claim') });
      assert.equal(at(review, 'object', 'metadata', 'uid'), at(stored, 'metadata', 'uid'));
      assert.equal(at(review, 'object', 'metadata', 'resourceVersion'), undefined);
      assert.deepEqual(at(review, 'object', 'status'), {});
      assert.equal(at(review, 'oldObject'), null);
      assert.equal(scene.storedDuringReview.at(-1), 404);
    });

    it('says what is written, by whom and how', async (t) => {
      const scene = await openScene(t, api());
      const { review, stored } = await scene.createClaim({ name: unique('claim') });
      const kind = { group: '', version: 'v1', kind: 'PersistentVolumeClaim' };
      const resource = { group: '', version: 'v1', resource: 'persistentvolumeclaims' };
      const { uid, userInfo, object, options, ...rest } = fieldsAt(review);
      assert.match(String(uid), /^[0-9a-f-]{36}$/);
      assert.notEqual(uid, at(object, 'metadata', 'uid'));
      assert.notEqual(textAt(userInfo, 'username'), '');
      assert.equal(at(options, 'kind'), 'CreateOptions');
      assert.deepEqual(rest, {
        kind,
        resource,
        requestKind: kind,
        requestResource: resource,
        name: at(stored, 'metadata', 'name'),
        namespace: at(stored, 'metadata', 'namespace'),
        operation: 'CREATE',
        oldObject: null,
        dryRun: false,
      });
    });

    it('is a POST of JSON that ends in a newline, and names the time-out', async (t) => {
      const scene = await openScene(t, api());
      await scene.createClaim({ name: unique('claim') });
      const sent = scene.server.reviews.at(-1);
      assert.equal(sent?.url, '/review?timeout=2s');
      assert.equal(sent.headers['content-type'], 'application/json');
      assert.equal(sent.headers['user-agent'], 'kube-apiserver-admission');
      assert.match(sent.text, /\}\n$/);
    });

    it('of a creation with generateName has the name already', async (t) => {
      const scene = await openScene(t, api());
      const { review, stored } = await scene.createClaim({ name: '', generateName: 'made-' });
      assert.equal(at(review, 'name'), at(stored, 'metadata', 'name'));
      assert.equal(at(review, 'object', 'metadata', 'name'), at(stored, 'metadata', 'name'));
    });

    it('of a dry run says so, and has a uid that never comes to be', async (t) => {
      const scene = await openScene(t, api());
      const name = unique('claim');
      const body = scene.claim({ name });
      await api().call('POST', scene.claims, { body, query: { dryRun: 'All' } });
      const review = scene.reviewsOf(name).at(-1);
      assert.equal(at(review, 'dryRun'), true);
      const stored = await api().create(scene.claims, body);
      assert.notEqual(at(review, 'object', 'metadata', 'uid'), at(stored, 'metadata', 'uid'));
    });

    it('of a creation comes also where the name is taken', async (t) => {
      const scene = await openScene(t, api());
      const name = unique('claim');
      const body = scene.claim({ name });
      await api().create(scene.claims, body);
      const before = scene.reviewsOf(name).length;
      const reply = await api().call('POST', scene.claims, { body });
      assert.equal(reply.status, 409, reply.text);
      assert.equal(scene.reviewsOf(name).length, before + 1);
    });

    it('of an update has the version that is replaced, and the old object', async (t) => {
      const scene = await openScene(t, api());
      const { stored, path, name } = await scene.createClaim({ name: unique('claim') });
      await api().patch('merge', path, { metadata: { annotations: { 'e.com/a': 'b' } } });
      const review = scene
        .reviewsOf(name)
        .find((each) => at(each, 'object', 'metadata', 'annotations', 'e.com/a') === 'b');
      assert.equal(at(review, 'operation'), 'UPDATE');
      const replaced = at(review, 'oldObject', 'metadata', 'resourceVersion');
      assert.equal(at(review, 'object', 'metadata', 'resourceVersion'), replaced);
      assert.equal(at(review, 'oldObject', 'metadata', 'uid'), at(stored, 'metadata', 'uid'));
      assert.equal(at(review, 'oldObject', 'metadata', 'annotations', 'e.com/a'), undefined);
    });

    it('of a status names the subresource', async (t) => {
      const scene = await openScene(t, api());
      const name = unique('volume');
      await api().create(VOLUMES, volume(name, { metadata: { labels: scene.labels } }));
      const status = { status: { phase: 'Failed', message: 'by a test' } };
      const reply = await api().patch('merge', `${VOLUMES}/${name}/status`, status);
      assert.equal(reply.status, 200, reply.text);
      const review = scene
        .reviewsOf(name)
        .find((each) => at(each, 'object', 'status', 'message') === 'by a test');
      assert.equal(at(review, 'subResource'), 'status');
      assert.equal(at(review, 'requestSubResource'), 'status');
      assert.equal(at(review, 'resource', 'resource'), 'persistentvolumes');
      assert.equal(at(review, 'namespace'), undefined);
    });
  });

  describe('a rule', () => {
    it('for an object does not match writes of its status', async (t) => {
      const scene = await openScene(t, api(), { rules: RULES.slice(0, 1) });
      const { path, name } = await scene.createClaim({ name: unique('claim') });
      const status = { status: { phase: 'Lost' } };
      const reply = await api().patch('merge', `${path}/status`, status);
      assert.equal(reply.status, 200, reply.text);
      const subresources = scene.reviewsOf(name).map((each) => at(each, 'subResource'));
      assert.deepEqual([...new Set(subresources)], [undefined]);
    });

    it('matches only the objects that the selector selects', async (t) => {
      const scene = await openScene(t, api());
      const name = unique('other');
      await api().create(scene.claims, claim(name));
      assert.deepEqual(scene.reviewsOf(name), []);
    });

    it('matches only in the namespaces that the selector selects', async (t) => {
      const scene = await openScene(t, api());
      const name = unique('elsewhere');
      const metadata = { labels: scene.labels };
      await api().create(paths('default').claims, claim(name, { metadata }));
      assert.deepEqual(scene.reviewsOf(name), []);
    });
  });
}

function describeRepeatedReviews(api: () => Connection): void {
  describe('a review', () => {
    it('is repeated for a patch whose object changes meanwhile', async (t) => {
      let isFirst = true;
      const scene = await openScene(t, api(), {
        async answer({ request }) {
          const marked = at(request, 'object', 'metadata', 'annotations', 'e.com/a') === 'patched';
          if (!marked || !isFirst) return ALLOWED;
          isFirst = false;
          const path = `${scene.claims}/${textAt(request, 'name')}`;
          await api().patch('merge', path, { metadata: { annotations: { 'e.com/b': 'between' } } });
          return ALLOWED;
        },
      });
      const { path, name } = await scene.createClaim({ name: unique('claim') });
      const patch = { metadata: { annotations: { 'e.com/a': 'patched' } } };
      const reply = await api().patch('merge', path, patch);
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'metadata', 'annotations', 'e.com/b'), 'between');
      const versions = scene
        .reviewsOf(name)
        .filter((each) => at(each, 'object', 'metadata', 'annotations', 'e.com/a') === 'patched')
        .filter((each) => at(each, 'oldObject', 'metadata', 'annotations', 'e.com/a') === undefined)
        .map((each) => at(each, 'oldObject', 'metadata', 'resourceVersion'));
      assert.ok(new Set(versions).size >= 2, String(versions));
    });

    it('comes for a write that changes nothing', async (t) => {
      const scene = await openScene(t, api());
      const { path, name } = await scene.createClaim({ name: unique('claim') });
      const patch = { metadata: { annotations: { 'e.com/a': 'same' } } };
      const first = await api().patch('merge', path, patch);
      const before = scene.reviewsOf(name).length;
      const again = await api().patch('merge', path, patch);
      const versionOf = ({ body }: { readonly body: unknown }) =>
        at(body, 'metadata', 'resourceVersion');
      assert.equal(versionOf(again), versionOf(first));
      assert.ok(scene.reviewsOf(name).length > before);
    });
  });
}

function describeVerdicts(api: () => Connection): void {
  describe('a webhook', () => {
    it('refuses a write with its own message', async (t) => {
      const status = { code: 418, message: 'not today' };
      const scene = await openScene(t, api(), {
        answer: byName('refused', { response: { allowed: false, status } }),
      });
      const reply = await scene.post('refused');
      assert.equal(reply.status, 418, reply.text);
      const denied = `admission webhook "${scene.hookName}" denied the request: not today`;
      assert.equal(at(reply.body, 'message'), denied);
    });

    it('refuses a write without an explanation', async (t) => {
      const scene = await openScene(t, api(), {
        answer: byName('refused', { response: { allowed: false } }),
      });
      const reply = await scene.post('refused');
      assert.equal(reply.status, 400, reply.text);
      assert.match(textAt(reply.body, 'message'), /denied the request without explanation$/);
    });

    for (const [what, answer] of BROKEN) {
      it(`that ${what} lets the write pass under Ignore`, async (t) => {
        const scene = await openScene(t, api(), { answer: byName('pass', answer) });
        const startedMs = performance.now();
        const reply = await scene.post('pass');
        assert.equal(reply.status, 201, reply.text);
        assert.ok(performance.now() - startedMs < 8000);
      });

      it(`that ${what} has the write refused under Fail`, async (t) => {
        const hook = { failurePolicy: 'Fail' };
        const scene = await openScene(t, api(), { hook, answer: byName('stop', answer) });
        const message = new RegExp(`failed calling webhook "${scene.hookName}"`);
        refused(await scene.post('stop'), { code: 500, reason: 'InternalError', message });
      });
    }
  });
}

const BROKEN: readonly (readonly [string, Answer])[] = [
  ['answers with 500', { status: 500 }],
  ['answers with another uid', { response: { allowed: true, uid: 'other' } }],
  ['does not answer in time', 'never'],
];

function describeConfigurations(api: () => Connection): void {
  describe('a webhook configuration', () => {
    it('gets its defaults', async () => {
      const { clientConfig } = NOBODY;
      const body = configuration({ clientConfig, rules: RULES });
      // Stored, it would be asked about the objects of all other tests.
      const query = { dryRun: 'All' };
      const { body: created } = await api().call('POST', CONFIGURATIONS, { body, query });
      const hook = at(created, 'webhooks', 0);
      assert.deepEqual(
        {
          failurePolicy: at(hook, 'failurePolicy'),
          matchPolicy: at(hook, 'matchPolicy'),
          namespaceSelector: at(hook, 'namespaceSelector'),
          objectSelector: at(hook, 'objectSelector'),
          timeoutSeconds: at(hook, 'timeoutSeconds'),
          scope: at(hook, 'rules', 0, 'scope'),
          generation: at(created, 'metadata', 'generation'),
        },
        {
          failurePolicy: 'Fail',
          matchPolicy: 'Equivalent',
          namespaceSelector: {},
          objectSelector: {},
          timeoutSeconds: 10,
          scope: '*',
          generation: 1,
        },
      );
    });

    for (const [what, hook] of WRONG) {
      it(`is refused: ${what}`, async () => {
        const body = configuration({ ...NOBODY, rules: RULES, ...hook });
        const reply = await api().call('POST', CONFIGURATIONS, { body, query: { dryRun: 'All' } });
        refused(reply, { code: 422, reason: 'Invalid' });
      });
    }
  });
}

/** Selects no object, so that nobody calls the address. */
const NOBODY = {
  clientConfig: { url: 'https://127.0.0.1:1/review' },
  objectSelector: { matchLabels: { nobody: unique('has') } },
};

const WRONG: readonly (readonly [string, Fields])[] = [
  ['the address is not https', { clientConfig: { url: 'http://127.0.0.1:1/review' } }],
  ['the address has a query', { clientConfig: { url: 'https://127.0.0.1:1/review?a=b' } }],
  ['there is no address', { clientConfig: {} }],
  ['the name has two segments', { name: 'two.segments' }],
  ['the side effects are not said', { sideEffects: undefined }],
  ['the time-out is longer than 30 s', { timeoutSeconds: 31 }],
  ['no version of reviews is known', { admissionReviewVersions: ['v9'] }],
  ['a rule has no resources', { rules: [{ ...ALL, operations: ['CREATE'] }] }],
  ['an operation is unknown', { rules: [{ ...RULES[0], operations: ['READ'] }] }],
];

function configuration(hook: Fields): Fields {
  return {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingWebhookConfiguration',
    metadata: { name: unique('hooks') },
    webhooks: [
      {
        name: 'notices.conformance.sutler.dev',
        sideEffects: 'NoneOnDryRun',
        admissionReviewVersions: ['v1'],
        ...hook,
      },
    ],
  };
}

/** Answers for the claim of that name, and allows everything else. */
function byName(name: string, answer: Answer): (review: ReviewRequest) => Answer {
  return ({ request }) => (at(request, 'name') === name ? answer : ALLOWED);
}

interface SceneOptions {
  readonly rules?: readonly Fields[];
  readonly hook?: Fields;
  readonly answer?: (review: ReviewRequest) => Answer | Promise<Answer>;
}

/** A webhook that is asked about the objects with its label, in a namespace of its own and about
 * those of the cluster; it is installed and known to be asked. */
async function openScene(t: TestContext, api: Connection, options: SceneOptions = {}) {
  const mark = unique('scene');
  const labels = { scene: mark };
  const namespace = await api.namespace();
  const { claims } = paths(namespace);
  await api.patch('merge', `/api/v1/namespaces/${namespace}`, { metadata: { labels } });
  const storedDuringReview: number[] = [];
  const server = await startWebhookServer(async (review) => {
    const { request } = review;
    if (at(request, 'operation') === 'CREATE' && at(request, 'dryRun') === false)
      storedDuringReview.push((await api.get(`${claims}/${textAt(request, 'name')}`)).status);
    return (await options.answer?.(review)) ?? ALLOWED;
  });
  t.after(() => server.close());
  const hookName = `${mark}.conformance.sutler.dev`;
  const hook = {
    name: hookName,
    clientConfig: server.clientConfig,
    rules: options.rules ?? RULES,
    failurePolicy: 'Ignore',
    timeoutSeconds: 2,
    objectSelector: { matchLabels: labels },
    namespaceSelector: { matchLabels: labels },
    ...options.hook,
  };
  const created = await api.create(CONFIGURATIONS, configuration(hook));
  t.after(() => api.call('DELETE', `${CONFIGURATIONS}/${textAt(created, 'metadata', 'name')}`));
  const scene = {
    server,
    hookName,
    labels,
    claims,
    storedDuringReview,
    claim: (metadata: Fields) => claim('', { metadata: { labels, ...metadata } }),
    post: (name: string) =>
      api.call('POST', claims, { body: claim(name, { metadata: { labels } }) }),
    /** The reviews of an object, oldest first. */
    reviewsOf: (name: string) => reviewsOf(server, name),
    /** Creates a claim; returns it with its review. */
    async createClaim(metadata: Fields) {
      const stored = await api.create(claims, scene.claim(metadata));
      const name = textAt(stored, 'metadata', 'name');
      return { stored, name, path: `${claims}/${name}`, review: reviewsOf(server, name)[0] };
    },
  };
  await untilAsked(api, scene);
  return scene;
}

/** A server asks a new webhook only some time after its configuration was stored. */
async function untilAsked(
  api: Connection,
  scene: { readonly server: WebhookServer; readonly claims: string; readonly labels: Fields },
): Promise<void> {
  const body = claim('probe', { metadata: { labels: scene.labels } });
  while (reviewsOf(scene.server, 'probe').length === 0) {
    await api.call('POST', scene.claims, { body, query: { dryRun: 'All' } });
    await delay(20);
  }
}

function reviewsOf(server: WebhookServer, name: string): readonly unknown[] {
  return server.reviews
    .map(({ request }) => request)
    .filter((request) => at(request, 'name') === name);
}
