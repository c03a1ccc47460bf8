import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkGatewayFlags } from '#src/gateway-client/open-driver.ts';
import { gatewayClientFlags } from '#src/gateway-client/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';

function check(...argv: readonly string[]): void {
  const parsed = parseFlags(gatewayClientFlags, { argv, env: {} });
  assert.ok(parsed.kind === 'run');
  checkGatewayFlags(parsed.flags);
}

describe('checkGatewayFlags', () => {
  it('accepts a Service in place of addresses', () =>
    check('--gateway-service=a/b', '--gateway-insecure'));
  it('refuses a Service beside addresses', () =>
    assert.throws(
      () => check('--gateway-service=a/b', '--gateway-insecure', '--gateway=unix:///a'),
      /--gateway and --gateway-service: give one of them/,
    ));
  it('refuses a Service without TLS', () =>
    assert.throws(() => check('--gateway-service=a/b'), /need TLS; give --gateway-tls-ca/));
});
