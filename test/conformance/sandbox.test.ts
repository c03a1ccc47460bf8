import { startSandboxApi } from '../../sandbox/api/server.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { startScheduler } from '../../sandbox/scheduler/scheduler.ts';
import { silentLog } from '#src/runtime/log.ts';
import { describeApiServer } from './api-server.ts';
import { describeVolumeBinder } from './binder.ts';
import { Connection, unique } from './connection.ts';
import { paths } from './objects.ts';
import { describeScheduler } from './scheduler.ts';

describeApiServer('the sandbox', open);
describeVolumeBinder('the sandbox', open);
describeScheduler('the sandbox', openWithScheduler);

/** Starts the sandbox's scheduler too. */
async function openWithScheduler() {
  const api = await startSandboxApi({ log: silentLog });
  const binder = startBinder({ operations: api.operations, log: silentLog });
  const scheduler = startScheduler({ operations: api.operations, log: silentLog });
  const close = async (): Promise<void> => {
    await scheduler.close();
    await binder.close();
    await api.close();
  };
  return { url: api.url, close };
}

/** Starts the sandbox's API server and volume binder. */
async function open() {
  const api = await startSandboxApi({ log: silentLog });
  const binder = startBinder({ operations: api.operations, log: silentLog });
  const close = async (): Promise<void> => {
    await binder.close();
    await api.close();
  };
  const server = { url: api.url, close };
  // A test needs a resourceVersion that is too old, so the history of events is dropped after one
  // event.
  const connection = new Connection(server);
  const involvedObject = { kind: 'PersistentVolume', name: 'any' };
  await connection.create(paths('default').events, {
    metadata: { name: unique('event') },
    involvedObject,
  });
  await connection.close();
  api.store.compact();
  return server;
}
