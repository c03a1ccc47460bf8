import { describe, it, type TestContext } from 'node:test';
import { silentLog } from '#src/runtime/log.ts';
import { startSandboxApi } from '../../../sandbox/api/server.ts';
import { startBinder } from '../../../sandbox/binder/binder.ts';
import { at, Connection, refused } from '../../conformance/connection.ts';
import { claim, CLASSES, paths, storageClass } from '../../conformance/objects.ts';
import { startWebhookServer } from '../../harness/webhook-server.ts';
import { until } from '../../harness/until.ts';

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations';

describe('webhooks of the sandbox', () => {
  it('are told of writes by its own controllers', async (t) => {
    const { connection } = await open(t);
    const server = await startWebhookServer();
    t.after(() => server.close());
    const { clientConfig } = server;
    await connection.create(CONFIGURATIONS, configuration({ clientConfig }));
    await connection.create(CLASSES, storageClass('dynamic'));
    const spec = { storageClassName: 'dynamic' };
    await connection.create(paths('default').claims, claim('asked-for', { spec }));
    const isAnnotated = ({ request }: { readonly request: unknown }) =>
      at(request, 'operation') === 'UPDATE' &&
      Object.keys(at(request, 'object', 'metadata', 'annotations') ?? {}).length === 2;
    await until(() => server.reviews.some(isAnnotated), 'a review of the annotated claim');
  });

  it('may have no matchConditions, which it could not evaluate', async (t) => {
    const { connection } = await open(t);
    const matchConditions = [{ name: 'never', expression: 'false' }];
    const clientConfig = { url: 'https://127.0.0.1:1/' };
    const body = configuration({ clientConfig, matchConditions });
    const reply = await connection.call('POST', CONFIGURATIONS, { body });
    const message = /webhooks\[0\]\.matchConditions: .*leave matchConditions out/;
    refused(reply, { code: 422, reason: 'Invalid', message });
  });
});

async function open(t: TestContext) {
  const api = await startSandboxApi({ log: silentLog });
  const binder = startBinder({ operations: api.operations, log: silentLog });
  const connection = new Connection({ ...api, tls: { ca: api.ca } });
  t.after(async () => {
    await connection.close();
    await binder.close();
    await api.close();
  });
  return { connection };
}

function configuration(hook: Readonly<Record<string, unknown>>) {
  return {
    metadata: { name: 'hooks' },
    webhooks: [
      {
        name: 'hints.sutler.dev.test',
        sideEffects: 'None',
        admissionReviewVersions: ['v1'],
        rules: [
          {
            operations: ['*'],
            apiGroups: [''],
            apiVersions: ['v1'],
            resources: ['persistentvolumeclaims'],
          },
        ],
        ...hook,
      },
    ],
  };
}
