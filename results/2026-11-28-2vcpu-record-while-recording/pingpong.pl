# Two processes hand a byte to and fro through pipes, so many times.
my $times = shift; pipe my $a, my $b; pipe my $c, my $d;
if (fork == 0) { for (1 .. $times) { sysread $a, my $x, 1; syswrite $d, $x } exit }
for (1 .. $times) { syswrite $b, 'x'; sysread $c, my $x, 1 }
wait;
